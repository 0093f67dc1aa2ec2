// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestPodCapacity: the numbers are those of AWS's list eni-max-pods.txt, but at most what a kubelet may have. The type with the fewest
// decides, and one that nobody knows makes it unknown.
func TestPodCapacity(t *testing.T) {
	described := []manifest.InstanceType{{Name: "m9x.huge", Arch: "amd64", Interfaces: 2, AddressesPerInterface: 6}}
	for name, c := range map[string]struct {
		machineType string
		others      []string
		pods        int
		smallest    string
	}{
		"t3.micro":      {"t3.micro", nil, 4, "t3.micro"},
		"t3.medium":     {"t3.medium", nil, 17, "t3.medium"},
		"m5.large":      {"m5.large", nil, 29, "m5.large"},
		"m5.4xlarge":    {"m5.4xlarge", nil, 234, "m5.4xlarge"},
		"of a kubelet":  {"m5.24xlarge", nil, 250, "m5.24xlarge"},
		"the smallest":  {"m5.large", []string{"m5.large", "t3.medium", "m5.4xlarge"}, 17, "t3.medium"},
		"described":     {"m9x.huge", nil, 12, "m9x.huge"},
		"not described": {"m5.large", []string{"m9x.large"}, 0, "m9x.large"},
	} {
		spec := v1alpha1.InstanceGroupSpec{MachineType: c.machineType}
		spec.MixedInstancesPolicy.Instances = c.others
		pods, smallest := manifest.Set{DescribedTypes: described}.PodCapacity(spec)
		if pods != c.pods || smallest != c.smallest {
			t.Errorf("%s: %d pods by %s, want %d by %s", name, pods, smallest, c.pods, c.smallest)
		}
	}
}
