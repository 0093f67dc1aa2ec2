// SPDX-License-Identifier: Apache-2.0

package build

// laterEtcdModule is the module of the next minor version of etcd. It is built on request, to test the upgrade.
const laterEtcdModule = "etcd-later"

// laterEtcdRecipes returns the module of the later etcd: it is built as the default version is.
func laterEtcdRecipes() []moduleRecipe {
	var out []moduleRecipe
	for _, r := range runtimeRecipes() {
		if r.Name == "etcd" {
			r.Name = laterEtcdModule
			out = append(out, r)
		}
	}

	return out
}

// laterEtcdFiles returns the file of the later etcd.
func laterEtcdFiles() []fileRecipe {
	var out []fileRecipe
	for _, r := range runtimeFiles() {
		if r.Module == "etcd" {
			r.Module = laterEtcdModule
			out = append(out, r)
		}
	}

	return out
}
