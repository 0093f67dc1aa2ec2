// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"slices"
	"strconv"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// addSlotRole adds the IAM role of a control-plane slot and returns it. It is that of the other slots, except that its
// machines can attach and detach the volume of their own slot only: IAM cannot compare the tag of a volume with that of
// the instance that calls. With an instance profile of the user, all slots share it.
func addSlotRole(b *builder, slot, subnet string) *machineRole {
	if existingControlPlaneProfile(b) != "" {
		return &b.controlPlane
	}

	m := b.controlPlane
	b.addRole(&m, roleSpec{
		graphName: slotRoleName(slot),
		name:      SlotRoleName(b.clusterName(), b.Region, slot),
		policy:    b.controlPlanePolicy(slot, newVolumeStatements(b, slot, subnet)...),
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

// VolumeTags returns the tags that the etcd volumes of all slots of a cluster have. A machine that creates one adds those of
// its slot.
func VolumeTags(c v1alpha1.Cluster, clusterID string) map[string]string {
	b := &builder{Input: Input{Cluster: c, ClusterID: clusterID}}
	tags := b.resourceTags(awskind.Volume{}.Kind(), "", nil)
	delete(tags, awskind.TagAddress)
	delete(tags, "Name")

	return tags
}

// newVolumeStatements allow the machine of a slot to create a volume that is the slot's in all that IAM compares: tags, zone,
// type, size, performance and encryption. Without a snapshot it is empty.
func newVolumeStatements(b *builder, slot, subnet string) []policyStatement {
	slots := 0
	for _, ig := range b.groupsByRole(v1alpha1.RoleControlPlane) {
		slots += ig.Spec.MinMachines()
	}

	if !v1alpha1.RecreatesVolumes(b.Cluster.Spec.Etcd, slots) {
		return nil
	}

	v := b.Cluster.Spec.Etcd.Volume
	tags := etcdVolumeTags(b, slot)
	asked := map[string]any{"ec2:VolumeType": v.Type, "ec2:AvailabilityZone": b.zoneOf(subnet)}
	numbers := map[string]any{"ec2:VolumeSize": strconv.Itoa(v.Size)}

	for key, value := range tags {
		asked["aws:RequestTag/"+key] = value
	}

	if v.IOPS != 0 {
		numbers["ec2:VolumeIops"] = strconv.Itoa(v.IOPS)
	}

	if v.Throughput != 0 {
		numbers["ec2:VolumeThroughput"] = strconv.Itoa(v.Throughput)
	}

	volumes := []string{"arn:" + b.Partition + ":ec2:" + b.Region + ":" + b.Account + ":volume/*"}

	return append(
		volumeKeyStatements(b),
		policyStatement{
			ID:        "CreateVolume",
			Actions:   []string{"ec2:CreateVolume"},
			Resources: volumes,
			Condition: policyCondition{
				"StringEquals":              asked,
				"NumericEquals":             numbers,
				"Bool":                      {"ec2:Encrypted": "true"},
				"Null":                      {"ec2:ParentSnapshot": "true"},
				"ForAllValues:StringEquals": {"aws:TagKeys": slices.Sorted(maps.Keys(tags))},
			},
		},
		policyStatement{
			ID:        "TagVolume",
			Actions:   []string{"ec2:CreateTags"},
			Resources: volumes,
			Condition: policyCondition{"StringEquals": {"ec2:CreateAction": "CreateVolume"}}, // of which the tags are checked above
		},
	)
}

// volumeKeyStatements allow EC2 to encrypt a volume for the machine that creates it, with a key of the user. The policy of
// Slipway's own key does so.
func volumeKeyStatements(b *builder) []policyStatement {
	key := b.Cluster.Spec.CloudProvider.AWS.KMSKeyARN
	if key == "" {
		return nil
	}

	return []policyStatement{{
		ID:        "EncryptVolume",
		Actions:   []string{"kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext"},
		Resources: []string{key},
		Condition: policyCondition{"StringEquals": {"kms:ViaService": "ec2." + b.Region + "." + b.dnsSuffix()}},
	}}
}

// etcdVolumeTags returns the tags of the volume of a slot.
func etcdVolumeTags(b *builder, slot string) awskind.Tags {
	return b.resourceTags(awskind.Volume{}.Kind(), "etcd-"+slot, awskind.Tags{awskind.TagSlot: slot})
}
