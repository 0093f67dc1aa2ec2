// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// ErrUnknownKubernetes means that no module builds a requested version of Kubernetes.
var ErrUnknownKubernetes = errors.New("no source for this version of Kubernetes")

// defaultKubernetesModule is the module of the version that is always built.
const defaultKubernetesModule = "kubernetes"

// earlierKubernetes returns the minor versions that are built on request, such as to test upgrades. Each has a
// module of its own, because a module can require only one version of Kubernetes.
func earlierKubernetes() []string { return []string{"1.35"} }

// kubernetesModule returns the name of the module of an earlier minor version.
func kubernetesModule(minor string) string { return defaultKubernetesModule + "-" + minor }

// earlierKubernetesRecipes are the modules of earlier versions of Kubernetes.
func earlierKubernetesRecipes() []moduleRecipe {
	var out []moduleRecipe
	for _, minor := range earlierKubernetes() {
		r := kubernetesRecipe(kubernetesModule(minor))
		r.Programs = map[string]string{r.Name: defaultKubernetesModule}
		out = append(out, r)
	}

	return out
}

// kubernetesFiles returns the files of one version of Kubernetes.
func kubernetesFiles(module string) []fileRecipe {
	var out []fileRecipe
	for _, name := range []string{"kubelet", "kubectl"} {
		out = append(out, fileRecipe{
			Name:    name,
			Module:  module,
			URL:     "https://dl.k8s.io/release/v{version}/bin/linux/{arch}/" + name,
			Format:  asset.FormatBinary,
			Program: defaultKubernetesModule,
		})
	}

	return out
}

// kubernetesImages returns the images of one version of Kubernetes.
func kubernetesImages(module string) []imageRecipe {
	var out []imageRecipe
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		layers := []string{"base", module}
		if name == "kube-proxy" {
			layers = []string{"base", "nftables", module}
		}

		out = append(out, imageRecipe{
			Name:       name,
			Module:     module,
			Ref:        "registry.k8s.io/" + name + ":v{version}",
			Layers:     layers,
			Entrypoint: []string{"/usr/local/bin/" + name},
		})
	}

	return out
}

// requestedModules returns the optional steps that were requested: those of versions of Kubernetes, of earlier
// components, of a later etcd, of add-ons and of the conformance tests. b.versions must be known. The error wraps [ErrUnknownKubernetes], and lists the versions that
// can be built.
func (b *builder) requestedModules() (map[string]bool, error) {
	requested := map[string]bool{laterEtcdModule: b.LaterEtcd}
	for _, component := range earlierComponents() {
		requested[earlierModule(component)] = b.EarlierComponents
	}

	for _, name := range addonSteps() {
		requested[name] = b.AddonImages
	}

	for _, name := range conformanceSteps() {
		requested[name] = b.Conformance
	}

	for _, version := range b.Kubernetes {
		module := b.findKubernetes(strings.TrimPrefix(version, "v"))
		if module == "" {
			var known []string
			for _, m := range b.modules {
				if isKubernetesModule(m.Name) {
					known = append(known, b.versions[m.Name])
				}
			}

			return nil, fmt.Errorf("build Kubernetes %s: %w: use one of %s",
				version, ErrUnknownKubernetes, strings.Join(known, ", "))
		}

		requested[module] = true
	}

	return requested, nil
}

// findKubernetes returns the module of a version, given in full or as a minor version; empty if there is none.
func (b *builder) findKubernetes(version string) string {
	for _, m := range b.modules {
		has := b.versions[m.Name]
		if isKubernetesModule(m.Name) && (has == version || strings.HasPrefix(has, version+".")) {
			return m.Name
		}
	}

	return ""
}

// isKubernetesModule reports whether a module, and thus a layer, has the programs of Kubernetes.
func isKubernetesModule(name string) bool {
	return name == defaultKubernetesModule || strings.HasPrefix(name, defaultKubernetesModule+"-")
}

// leaveOut removes a module or a layer, and what is made of it, from the build.
func (b *builder) leaveOut(module string) {
	b.files = slices.DeleteFunc(b.files, func(r fileRecipe) bool { return r.Module == module })
	b.images = slices.DeleteFunc(b.images, func(r imageRecipe) bool {
		return r.Module == module || slices.Contains(r.Layers, module)
	})
}
