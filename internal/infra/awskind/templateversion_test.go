// SPDX-License-Identifier: Apache-2.0

package awskind_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// launchedFrom is a template in a version.
func launchedFrom(id, version string) awskind.TemplateSpec {
	return awskind.TemplateSpec{ID: graph.UnmanagedRef[awskind.LaunchTemplate](id), Version: graph.LiteralText(version)}
}

// mixedFrom is a policy with a template in a version.
func mixedFrom(version string) awskind.MixedInstancesPolicy {
	return awskind.MixedInstancesPolicy{Launch: awskind.MixedLaunch{
		Template: awskind.MixedTemplateSpec(launchedFrom("lt-1", version)), Overrides: []awskind.InstanceTypeOverride{{InstanceType: "m5.large"}},
	}}
}

// TestKeepTemplateVersion: a group keeps the number of the version of its template, whatever else changes, but neither a version
// that moves by itself nor that of another template. Bastions, which no rolling update replaces, keep nothing.
func TestKeepTemplateVersion(t *testing.T) {
	type group = awskind.AutoScalingGroup
	for name, c := range map[string]struct{ want, have, kept group }{
		"older version": {group{MaxSize: 3, Template: launchedFrom("lt-1", "2")}, group{MaxSize: 2, Template: launchedFrom("lt-1", "1")}, group{MaxSize: 3, Template: launchedFrom("lt-1", "1")}},
		"unknown yet": {
			group{Template: awskind.TemplateSpec{ID: graph.UnmanagedRef[awskind.LaunchTemplate]("lt-1")}},
			group{Template: launchedFrom("lt-1", "1")},
			group{Template: launchedFrom("lt-1", "1")},
		},
		"$Latest":                {group{Template: launchedFrom("lt-1", "2")}, group{Template: launchedFrom("lt-1", "$Latest")}, group{Template: launchedFrom("lt-1", "2")}},
		"another template":       {group{Template: launchedFrom("lt-1", "2")}, group{Template: launchedFrom("lt-2", "1")}, group{Template: launchedFrom("lt-1", "2")}},
		"mixed instances":        {group{MixedInstances: mixedFrom("2")}, group{MixedInstances: mixedFrom("1")}, group{MixedInstances: mixedFrom("1")}},
		"mixed instances now":    {group{MixedInstances: mixedFrom("2")}, group{Template: launchedFrom("lt-1", "1")}, group{MixedInstances: mixedFrom("1")}},
		"mixed instances before": {group{Template: launchedFrom("lt-1", "2")}, group{MixedInstances: mixedFrom("1")}, group{Template: launchedFrom("lt-1", "1")}},
		"bastion": {
			group{Template: launchedFrom("lt-1", "2"), Tags: awskind.Tags{awskind.TagRole: "bastion"}},
			group{Template: launchedFrom("lt-1", "1")},
			group{Template: launchedFrom("lt-1", "2"), Tags: awskind.Tags{awskind.TagRole: "bastion"}},
		},
	} {
		properties := func(r graph.Resource) map[string]any {
			out := map[string]any{}
			for _, f := range graph.Fields(r) {
				out[f.Property] = f.Value
			}
			return out
		}
		if diff := cmp.Diff(properties(c.kept), properties(c.want.KeepFrom(c.have))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
