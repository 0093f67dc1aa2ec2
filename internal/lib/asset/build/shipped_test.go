// SPDX-License-Identifier: Apache-2.0

package build //nolint:testpackage // it reads the recipes

import (
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// TestShippedVersionsAreBuilt: the versions that machines on AWS download by default are those that are built here, and
// so those that the tests on machines run. Of earlier versions of Kubernetes, the one that is built is in the catalogue.
func TestShippedVersionsAreBuilt(t *testing.T) {
	catalog, err := asset.LoadEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	b := newBuilder(Options{Source: "../../../../assets"})
	for i := range b.modules {
		if err := b.resolveVersion(&b.modules[i]); err != nil {
			t.Fatal(err)
		}
	}

	modules := map[string]string{}
	for _, f := range b.files {
		modules[f.Name+" "+b.versions[f.Module]] = f.Module
	}
	for _, i := range b.images {
		modules[i.Name+" "+b.versions[i.Module]] = i.Module
	}

	for _, name := range []string{"kubelet", "kubectl", "etcd", "containerd", "runc", "cni-plugins", "kube-apiserver", "kube-proxy", "coredns", "flannel", "flannel-cni-plugin", "pause"} {
		versions := catalog.Versions(name)
		if len(versions) == 0 {
			t.Errorf("the catalogue lacks %s", name)
			continue
		}
		if modules[name+" "+versions[0]] == "" {
			t.Errorf("%s %s is shipped, and another version is built", name, versions[0])
		}
	}
	for _, minor := range earlierKubernetes() {
		version := b.versions[kubernetesModule(minor)]
		if !slices.Contains(catalog.Versions("kubelet"), version) {
			t.Errorf("Kubernetes %s is built, and not in the catalogue", version)
		}
	}
}
