// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// TestPrivateRegistryOfCatalogue: a catalogue alone does not make machines pull from a private registry, for which only the
// manifest gives their roles permission.
func TestPrivateRegistryOfCatalogue(t *testing.T) {
	t.Parallel()
	const private = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mirror"
	for name, c := range map[string]struct {
		catalogue, manifest string
		ok                  bool
	}{
		"upstream":         {"", "", true},
		"another mirror":   {"registry.example.com", "", true},
		"in the manifest":  {private, private, true},
		"in the catalogue": {private, "", false},
	} {
		cluster := v1alpha1.Cluster{}
		cluster.Spec.Assets.ContainerRegistry = c.manifest
		err := checkImageRegistry(asset.Catalog{ContainerRegistry: c.catalogue}, cluster)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
