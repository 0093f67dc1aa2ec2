// SPDX-License-Identifier: Apache-2.0

package build

import "slices"

// earlierComponents returns the components, by the name of their default module, of which an earlier version is built on
// request too, to test an upgrade of components only.
func earlierComponents() []string { return []string{"etcd", "containerd", "cni-plugins"} }

// earlierModule returns the name of the module of the earlier version of a component.
func earlierModule(component string) string { return component + "-earlier" }

// earlierComponentRecipes returns the modules of the earlier components: they are built as the default versions are.
func earlierComponentRecipes() []moduleRecipe {
	var out []moduleRecipe
	for _, r := range slices.Concat(runtimeRecipes(), networkRecipes()) {
		if slices.Contains(earlierComponents(), r.Name) {
			r.Name = earlierModule(r.Name)
			out = append(out, r)
		}
	}

	return out
}

// earlierComponentFiles returns the files of the earlier components.
func earlierComponentFiles() []fileRecipe {
	var out []fileRecipe
	for _, r := range runtimeFiles() {
		if slices.Contains(earlierComponents(), r.Module) {
			r.Module = earlierModule(r.Module)
			out = append(out, r)
		}
	}

	return out
}
