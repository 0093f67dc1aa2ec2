// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestSizesOfGroups: a size of zero is a size, not an unset field, and survives encoding.
func TestSizesOfGroups(t *testing.T) {
	for _, c := range []struct {
		name, role, sizes string
		least, most       int
		finding           string
	}{
		{name: "unset", role: "Worker", least: 2, most: 2},
		{name: "zero", role: "Worker", sizes: "minSize: 0, maxSize: 0"},
		{name: "only maxSize zero", role: "Worker", sizes: "maxSize: 0"},
		{name: "only minSize zero", role: "Worker", sizes: "minSize: 0"},
		{name: "from zero", role: "Worker", sizes: "minSize: 0, maxSize: 5", most: 5},
		{name: "only maxSize one", role: "Worker", sizes: "maxSize: 1", least: 1, most: 1},
		{name: "more than the maximum", role: "Worker", sizes: "minSize: 1, maxSize: 0", least: 1, finding: "is less than minSize 1"},
		{name: "negative", role: "Worker", sizes: "minSize: -1, maxSize: 0", least: -1, finding: "is out of range (use 0 to"},
		{name: "bastion", role: "Bastion", sizes: "minSize: 0, maxSize: 0", finding: "is out of range (use 1 to"},
		{name: "control plane", role: "ControlPlane", sizes: "minSize: 0, maxSize: 0", finding: "is not a valid number of control-plane machines"},
		{name: "two of the control plane", role: "ControlPlane", sizes: "minSize: 2, maxSize: 2", least: 2, most: 2, finding: "is not a valid number of control-plane machines"},
		{name: "four of the control plane", role: "ControlPlane", sizes: "minSize: 4, maxSize: 4", least: 4, most: 4, finding: "is not a valid number of control-plane machines"},
		{name: "seven of the control plane", role: "ControlPlane", sizes: "minSize: 7, maxSize: 7", least: 7, most: 7, finding: "is not a valid number of control-plane machines"},
		{name: "five of the control plane", role: "ControlPlane", sizes: "minSize: 5, maxSize: 5", least: 5, most: 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "apiVersion: slipway.dev/v1alpha1\nkind: InstanceGroup\nmetadata: {name: gpu}\nspec: {role: " + c.role + ", " + c.sizes + "}\n"
			set, findings := manifest.Parse([]byte(text))
			if len(findings) > 0 {
				t.Fatal(findings)
			}
			set = manifest.Default(set)
			spec := set.Groups[0].Spec
			if spec.MinMachines() != c.least || spec.MaxMachines() != c.most {
				t.Errorf("%d to %d machines, want %d to %d", spec.MinMachines(), spec.MaxMachines(), c.least, c.most)
			}
			got := render(manifest.Validate(set))
			if c.finding != "" && !strings.Contains(got, c.finding) || c.finding == "" && strings.Contains(got, "Size") {
				t.Errorf("want the finding %q, got:\n%s", c.finding, got)
			}
			encoded := manifest.EncodeGroup(set.Groups[0])
			again, _ := manifest.Parse(encoded)
			if twice := manifest.EncodeGroup(manifest.Default(again).Groups[0]); !bytes.Equal(encoded, twice) {
				t.Errorf("encoded and read again:\n%s\nwas:\n%s", twice, encoded)
			}
		})
	}
}
