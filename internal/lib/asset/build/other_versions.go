// SPDX-License-Identifier: Apache-2.0

package build

import "slices"

// earlierComponents returns the components, by the name of their default module, of which an earlier version is built on
// request too, to test an upgrade of components only.
func earlierComponents() []string { return []string{"etcd", "containerd", "cni-plugins"} }

// earlierModule returns the name of the module of the earlier version of a component.
func earlierModule(component string) string { return component + "-earlier" }

// laterEtcdModule is the module of the next minor version of etcd. It is built on request, to test the upgrade.
const laterEtcdModule = "etcd-later"

// otherVersions returns the modules of the versions that are built on request, by the component whose recipe they have.
func otherVersions() map[string][]string {
	out := map[string][]string{}
	for _, component := range earlierComponents() {
		out[component] = append(out[component], earlierModule(component))
	}

	out["etcd"] = append(out["etcd"], laterEtcdModule)

	return out
}

// otherVersionRecipes returns the modules of the other versions: they are built as the default versions are.
func otherVersionRecipes() []moduleRecipe {
	modules := otherVersions()
	var out []moduleRecipe
	for _, r := range slices.Concat(runtimeRecipes(), networkRecipes()) {
		for _, module := range modules[r.Name] {
			r.Name = module
			out = append(out, r)
		}
	}

	return out
}

// otherVersionFiles returns the files of the other versions.
func otherVersionFiles() []fileRecipe {
	modules := otherVersions()
	var out []fileRecipe
	for _, r := range runtimeFiles() {
		for _, module := range modules[r.Module] {
			r.Module = module
			out = append(out, r)
		}
	}

	return out
}
