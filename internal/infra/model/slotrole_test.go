// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
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

// TestVolumesThatMachinesCreate: the role of a slot may create a volume, which has all that apply would give it, and nothing
// else; not if the manifest forbids it, and not that of the only member.
func TestVolumesThatMachinesCreate(t *testing.T) {
	in := input(t, manifest.NewSetOptions{})
	in.Cluster.Spec.Tags = map[string]string{"team": "x"}
	policy := func(g *graph.Graph) string {
		return string(nodeAt[awskind.IAMRolePolicy](t, g, "control-plane-b").Document)
	}
	in.Cluster.Spec.Etcd.RecreateVolumesAfter = v1alpha1.RecreateVolumesNever
	if got := policy(build(t, in)); strings.Contains(got, "ec2:Create") {
		t.Errorf("without the setting: %s", got)
	}
	single := input(t, manifest.NewSetOptions{ControlPlaneCount: 1})
	single.Cluster.Spec.Etcd.RecreateVolumesAfter = "5m"
	if got := string(nodeAt[awskind.IAMRolePolicy](t, build(t, single), "control-plane-a").Document); strings.Contains(got, "ec2:Create") {
		t.Errorf("of the only member: %s", got)
	}

	in.Cluster.Spec.Etcd.RecreateVolumesAfter = "5m"
	g := build(t, in)
	for _, want := range []string{
		`"ec2:Encrypted":"true"`, `"ec2:VolumeSize":"20"`, `"ec2:AvailabilityZone":"us-east-1b"`, `"ec2:VolumeType":"gp3"`,
		`"aws:RequestTag/slipway.dev/etcd-slot":"b"`, `"aws:RequestTag/slipway.dev/address":"volume/etcd-b"`,
		`"aws:RequestTag/team":"x"`, `"ec2:ParentSnapshot":"true"`, `"ec2:CreateAction":"CreateVolume"`, `"aws:TagKeys":["Name",`,
	} {
		if got := policy(g); !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}

	const own = "arn:aws:kms:us-east-1:123456789012:key/own"
	if strings.Contains(policy(g), "kms:CreateGrant") {
		t.Errorf("the policy of the cluster's own key allows EC2 to use it: %s", policy(g))
	}
	withKey := in
	withKey.Cluster.Spec.CloudProvider.AWS.KMSKeyARN = own
	if got := policy(build(t, withKey)); !strings.Contains(got, `"kms:CreateGrant"`) || !strings.Contains(got, `"Resource":["`+own+`"]`) ||
		!strings.Contains(got, `"kms:ViaService":"ec2.us-east-1.amazonaws.com"`) {
		t.Errorf("a key of the user: %s", got)
	}

	tags := model.VolumeTags(in.Cluster, in.ClusterID)
	tags[awskind.TagSlot] = "b"
	tags[awskind.TagAddress] = "volume/etcd-b"
	tags["Name"] = "etcd-b.demo"
	if diff := cmp.Diff(nodeAt[awskind.Volume](t, g, "etcd-b").Tags, tags); diff != "" {
		t.Errorf("tags (-apply +machine):\n%s", diff)
	}
}

// TestPolicyOfSlotFits: the inline policies of a role have 10,240 characters at most, also with the longest names and tags.
func TestPolicyOfSlotFits(t *testing.T) {
	in := input(t, manifest.NewSetOptions{})
	in.Cluster.Metadata.Name = longest("c", 40)
	in.Cluster.Spec.Tags = map[string]string{}
	for i := range 7 { // more are too long for it: see the manifest's validation
		in.Cluster.Spec.Tags[fmt.Sprintf("k%099d", i)] = strings.Repeat("v", 132)
	}
	in.Cluster.Spec.MachineAccess.SessionManager = true
	in.Cluster.Spec.KubeAPIServer.AuditLogUpload = true
	in.Cluster.Spec.CloudProvider.AWS.KMSKeyARN = "arn:aws:kms:us-east-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
	in.Cluster.Spec.Assets.ContainerRegistry = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mirror"
	set := manifest.Default(manifest.Set{Cluster: in.Cluster, Groups: in.Groups})
	in.Cluster, in.Groups = set.Cluster, set.Groups
	if in.Cluster.Spec.Etcd.RecreateVolumesAfter == "" {
		t.Fatal("the tags are too long")
	}
	in.MachineStore.Bucket = longest("b", 63)
	g := build(t, in)
	got := string(nodeAt[awskind.IAMRolePolicy](t, g, "control-plane-b").Document)
	all := len(got) + len(nodeAt[awskind.IAMRolePolicy](t, g, "control-plane-b-session-manager").Document)
	if all > 10240 || !strings.Contains(got, "ec2:CreateVolume") {
		t.Errorf("the policies have %d characters: %s", all, got)
	}
	t.Logf("COUNT characters of a slot's policies with the longest names and tags: %d of 10240", all)
}
