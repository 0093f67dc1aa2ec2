// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

func TestMachineLimits(t *testing.T) {
	for _, tc := range []struct {
		text     v1alpha1.NumberOrPercent
		size     int
		down, up int
	}{
		{"0", 10, 0, 0}, {"3", 10, 3, 3}, {"25%", 10, 2, 3}, {"1%", 10, 1, 1}, {"100%", 10, 10, 10}, {"10%", 1000, 100, 100},
	} {
		limit, err := manifest.ParseMachineLimit(tc.text)
		if err != nil || limit.RoundDown(tc.size) != tc.down || limit.RoundUp(tc.size) != tc.up {
			t.Errorf("%s of %d: %d, %d, %v", tc.text, tc.size, limit.RoundDown(tc.size), limit.RoundUp(tc.size), err)
		}
	}

	for _, text := range []v1alpha1.NumberOrPercent{"-1", "x", "101%", "%", "0%", "", "1.5", "1000000000"} {
		if _, err := manifest.ParseMachineLimit(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

const groupText = `apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: g}
spec:
  role: ROLE
  rollingUpdate:
    FIELDS
`

func TestRollingUpdateFields(t *testing.T) {
	for _, tc := range []struct{ role, fields, want string }{
		{"Worker", "{maxUnavailable: 10%, maxSurge: 2, canary: 1, drainTimeout: 5m, pauseBetween: 30s, maxFailures: 2}", ""},
		{"Worker", "{maxUnavailable: 0, maxSurge: 1}", ""},
		{"Worker", "{maxUnavailable: 0}", "spec.rollingUpdate.maxUnavailable 0: is 0 without maxSurge"},
		{"Worker", "{maxUnavailable: 120%}", "spec.rollingUpdate.maxUnavailable 120%: is not a percentage from 1% to 100%"},
		{"Worker", "{maxSurge: [1]}", "spec.rollingUpdate.maxSurge [1]: must be a number or a percentage, not a list"},
		{"Worker", "{drainTimeout: 5}", "spec.rollingUpdate.drainTimeout 5: must be a string, not an integer"},
		{"Worker", "{pauseBetween: soon}", "spec.rollingUpdate.pauseBetween soon: is not a valid duration"},
		{"ControlPlane", "{maxSurge: 1}", "spec.rollingUpdate.maxSurge 1: is for workers"},
		{"ControlPlane", "{maxSurge: 0}", ""},
		{"ControlPlane", "{maxUnavailable: 1}", "spec.rollingUpdate.maxUnavailable 1: is for workers"},
		{"ControlPlane", "{drainTimeout: 5m}", ""},
		{"Bastion", "{drainTimeout: 5m}", "spec.rollingUpdate: has no effect: a bastion does not run Kubernetes"},
		{"Worker", "{gates: [{name: a, deployment: default/web}, {name: b, url: 'https://x/y'}, {name: c, command: [x]}]}", ""},
		{"Worker", "{gates: [{name: a, deployment: web}]}", "spec.rollingUpdate.gates[0].deployment web: is not NAMESPACE/NAME"},
		{"Worker", "{gates: [{name: a, url: x}]}", "spec.rollingUpdate.gates[0].url x: is not an http or https URL"},
		{"Worker", "{gates: [{name: a}]}", "spec.rollingUpdate.gates[0] a: sets 0 checks instead of one"},
		{"Worker", "{gates: [{name: a, url: 'http://x', command: [x]}]}", "spec.rollingUpdate.gates[0] a: sets 2 checks instead of one"},
	} {
		text := strings.NewReplacer("ROLE", tc.role, "FIELDS", tc.fields).Replace(groupText)
		set, parsed := manifest.Parse([]byte(text))
		var got []string
		for _, f := range manifest.Check(set, parsed) {
			if strings.Contains(f.Path, "rollingUpdate") {
				got = append(got, strings.ReplaceAll(f.String(), `"`, ""))
			}
		}

		if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)) {
			t.Errorf("%s %s: %q, want %q", tc.role, tc.fields, got, tc.want)
		}
	}
}

// A number of machines stays a number when a manifest is stored and read again.
func TestNumberOrPercentSurvivesEncoding(t *testing.T) {
	text := strings.NewReplacer("ROLE", "Worker", "FIELDS", "{maxUnavailable: 25%, maxSurge: 2}").Replace(groupText)
	set, _ := manifest.Parse([]byte(text))
	encoded := string(manifest.EncodeYAML(set))
	if !strings.Contains(encoded, "maxSurge: 2\n") || !strings.Contains(encoded, "maxUnavailable: 25%\n") {
		t.Error(encoded)
	}

	again, findings := manifest.Parse([]byte(encoded))
	if diff := cmp.Diff(set.Groups, again.Groups); diff != "" || len(findings) > 0 {
		t.Error(diff, findings)
	}
}
