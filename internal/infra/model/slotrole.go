// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// addSlotRole adds the IAM role of a control-plane slot and returns it. It is that of the other slots, except that its
// machines can attach and detach the volume of their own slot only: IAM cannot compare the tag of a volume with that of
// the instance that calls. With an instance profile of the user, all slots share it.
func addSlotRole(b *builder, slot string) *machineRole {
	if existingControlPlaneProfile(b) != "" {
		return &b.controlPlane
	}

	m := b.controlPlane
	b.addRole(&m, roleSpec{
		graphName: slotRoleName(slot),
		name:      SlotRoleName(b.clusterName(), b.Region, slot),
		policy:    b.controlPlanePolicy(slot),
		tags:      awskind.Tags{awskind.TagSlot: slot},
	})

	return &m
}

func existingControlPlaneProfile(b *builder) string {
	return b.existingProfile(b.Cluster.Spec.CloudProvider.AWS.InstanceProfiles, v1alpha1.RoleControlPlane)
}

// ownSlotCondition is true for the cluster's resources of a slot; an empty slot: of all slots.
func ownSlotCondition(b *builder, slot string) policyCondition {
	tags := map[string]any{"aws:ResourceTag/" + awskind.TagCluster: b.clusterName()}
	if slot != "" {
		tags["aws:ResourceTag/"+awskind.TagSlot] = slot
	}

	// Machines and volumes that an older slipway created have no id until the next apply tags them.
	return policyCondition{
		"StringEquals":         tags,
		"StringEqualsIfExists": {"aws:ResourceTag/" + awskind.TagClusterID: b.ClusterID},
	}
}
