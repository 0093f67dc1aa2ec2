// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestFindingsNameTheLine: what is wrong with a value is reported with its file, line and column.
func TestFindingsNameTheLine(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"syntax", "apiVersion: slipway.dev/v1alpha1\nkind: Cluster\n\tmetadata: x\n", "m.yaml:3:1: document 1: has a tab"},
		{"unknown field", cluster + "    podCDIR: 10.0.0.0/8\n", "m.yaml:6:5: cluster/demo: spec.networking.podCDIR: is not a known field"},
		{"wrong type", cluster + "    networkCIDR: 10\n", "m.yaml:6:5: cluster/demo: spec.networking.networkCIDR"},
		{"value", cluster + "    podCIDR: 10.80.0.0/16\n", "m.yaml:6:5: cluster/demo: spec.networking.podCIDR"},
		{"item", cluster + "    subnets:\n    - {name: a,\n       zone: mars}\n", "m.yaml:8:8: cluster/demo: spec.networking.subnets[0].zone"},
		{"field left out", cluster + "    subnets: []\n", "m.yaml:6:5: cluster/demo: spec.networking.subnets"},
		{"second document", cluster + "---\n\nkind: Nothing\n", "m.yaml:8:1: document 2: kind"},
		{"kops", "apiVersion: kops.k8s.io/v1alpha2\nkind: Cluster\n", "m.yaml:1:1: document 1: apiVersion \"kops.k8s.io/v1alpha2\": is not supported (this is a manifest of kops"},
		{"list", "\n- a\n", "m.yaml:1:1: document 1: is not a mapping"},
	} {
		t.Run(test.name, func(t *testing.T) {
			set, findings := manifest.Parse([]byte(test.text))
			findings = append(findings, manifest.Validate(manifest.Default(set))...)
			source := manifest.Source{File: "m.yaml", Text: []byte(test.text)}
			for _, f := range source.Locate(findings) {
				if strings.HasPrefix(f.String(), test.want) {
					return
				}
			}
			t.Errorf("want %s in\n%s", test.want, render(source.Locate(findings)))
		})
	}
}

// TestFindingsWithoutAFile: documents of the state store have no lines that a person can open.
func TestFindingsWithoutAFile(t *testing.T) {
	_, findings := manifest.Parse([]byte("kind: [\n"))
	if diff := cmp.Diff(findings, manifest.Source{}.Locate(findings)); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(findings[0].String(), ":1:") {
		t.Errorf("%s has a line of no file", findings[0])
	}
	if _, findings := manifest.Parse([]byte("# nothing\n---\n")); len(findings) != 1 || findings[0].Message != "is empty" {
		t.Errorf("an empty manifest: %v", findings)
	}
}

const cluster = `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  networking:
`
