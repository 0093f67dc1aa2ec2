// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"regexp"
	"strings"
	"testing"
)

// TestFieldsOfTheOtherKind: a field at the wrong kind, and a field of another tool, is answered with the right one.
func TestFieldsOfTheOtherKind(t *testing.T) {
	const head = "apiVersion: slipway.dev/v1alpha1\nmetadata: {name: demo}\nkind: "
	for text, want := range map[string]string{
		"Cluster\nspec: {kubelet: {maxPods: 50}}":                              "it is a field of the InstanceGroup: slipway edit group GROUP --name CLUSTER",
		"Cluster\nspec: {nodeLabels: {tier: web}}":                             "it is a field of the InstanceGroup",
		"InstanceGroup\nspec: {labels: {tier: web}}":                           "write spec.nodeLabels",
		"InstanceGroup\nspec: {sshAccess: [10.0.0.0/8]}":                       "it is a field of the Cluster: slipway edit cluster NAME",
		"InstanceGroup\nspec: {rootVolumeSize: 80}":                            "write spec.rootVolume.size",
		"Cluster\nspec: {kubernetesApiAccess: [10.0.0.0/8]}":                   "write spec.api.access",
		"InstanceGroup\nspec: {minSzie: 3}":                                    "did you mean minSize?",
		"Cluster\nspec: {etcd: {volume: {siez: 3}}}":                           "did you mean size?",
		"Cluster\nspec: {networking: {subnets: [{zone: a, autoAssign: yes}]}}": "known here: ",
	} {
		_, fs := Parse([]byte(head + text))
		if len(fs) == 0 || !strings.Contains(fs[0].Hint, want) {
			t.Errorf("%s: got %v, want the hint %s", text, fs, want)
		}
	}
}

// TestOtherToolsFieldsLeadToFields: each replacement is a field that exists, and no entry hides one.
func TestOtherToolsFieldsLeadToFields(t *testing.T) {
	shapes := map[string]any{"Cluster": clusterShape(), "InstanceGroup": groupShape()}
	for kind, fields := range otherToolsFields() {
		for path, hint := range fields {
			if hasField(shapes[kind], path) {
				t.Errorf("%s has %s: remove it from the table", kind, path)
			}
			for _, named := range regexp.MustCompile(`spec\.[A-Za-z.]*[A-Za-z]`).FindAllString(hint, -1) {
				if !hasField(shapes["Cluster"], named) && !hasField(shapes["InstanceGroup"], named) {
					t.Errorf("%s %s: there is no field %s", kind, path, named)
				}
			}
		}
	}
}
