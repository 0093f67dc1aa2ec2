// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// profileOf returns the instance profile of the machines of a control-plane slot.
func profileOf(t *testing.T, g *graph.Graph, slot string) graph.Ref[awskind.InstanceProfile] {
	t.Helper()
	return nodeAt[awskind.LaunchTemplate](t, g, "control-plane-"+slot).Data.Profile.Name
}

// TestSlotsHaveTheirOwnRoles: each slot has a role with its tag. The role that all had stays while the input says so,
// unused; an instance profile of the user is shared by all.
func TestSlotsHaveTheirOwnRoles(t *testing.T) {
	in := input(t, manifest.NewSetOptions{})
	g := build(t, in)
	for _, slot := range []string{"a", "b", "c"} {
		name := "control-plane-" + slot
		if got := profileOf(t, g, slot).Addr(); got != graph.Addr("iam-instance-profile/"+name) {
			t.Errorf("slot %s has profile %s", slot, got)
		}

		role := nodeAt[awskind.IAMRole](t, g, name)
		if role.Tags[awskind.TagSlot] != slot || role.Name != "demo."+name+".us-east-1" {
			t.Errorf("slot %s has role %+v", slot, role)
		}
	}

	if g.Node("iam-role/control-plane") != nil {
		t.Error("a new cluster has the shared role")
	}

	in.KeepsSharedRole = true
	kept := build(t, in)
	if n := len(kept.Nodes()) - len(g.Nodes()); n != 3 || kept.Node("iam-role-policy/control-plane") == nil {
		t.Errorf("%d more resources, want a role, its policy and its profile", n)
	}

	if got := profileOf(t, kept, "a").Addr(); got != "iam-instance-profile/control-plane-a" {
		t.Errorf("slot a launches machines with %s", got)
	}

	in.KeepsSharedRole = false
	in.Cluster.Spec.CloudProvider.AWS.InstanceProfiles = v1alpha1.Existing{ControlPlane: "mine"}
	own := build(t, in)
	if got := profileOf(t, own, "b").Literal(); got != "mine" || own.Node("iam-role/control-plane-b") != nil {
		t.Errorf("with a profile of the user, slot b has %q", got)
	}
}
