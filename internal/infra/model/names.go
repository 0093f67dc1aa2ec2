// SPDX-License-Identifier: Apache-2.0

package model

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// The longest names that AWS allows.
const (
	maxRoleName     = 64
	maxBalancerName = 32
)

// RoleName is the name of the IAM role and of the instance profile of machines of role. It holds the region, since IAM
// is global and a cluster of the same name may live in another one.
func RoleName(cluster, region string, role v1alpha1.Role) string {
	return shortenName(cluster+"."+roleTag(role)+"."+region, maxRoleName)
}

// GroupRoleName is the name of the IAM role and of the instance profile of a group of workers that has rights of its own.
func GroupRoleName(cluster, region, group string) string {
	return shortenName(cluster+".worker-"+group+"."+region, maxRoleName)
}

// HasOwnRole says whether a group has an IAM role of its own.
func HasOwnRole(ig v1alpha1.InstanceGroup) bool {
	return len(ig.Spec.IAM.Policies) > 0 || ig.Spec.IAM.InlinePolicy != ""
}

// RolePath is the IAM path of a cluster's roles and profiles: one call lists them.
func RolePath(cluster, region string) string { return "/slipway/" + region + "/" + cluster + "/" }

// KeyAliasName is the name of a cluster's KMS key.
func KeyAliasName(cluster string) string { return "alias/slipway/" + cluster }

// SlotGroupName is the name of the auto scaling group of a control-plane slot.
func SlotGroupName(cluster, group, slot string) string { return group + "-" + slot + "." + cluster }

// GroupName is the name of the auto scaling group of a group of workers.
func GroupName(cluster, group string) string { return group + "." + cluster }

// LoadBalancerNames are the names of a cluster's load balancers; it may have only some of them.
func LoadBalancerNames(cluster string) []string {
	return []string{
		balancerName(cluster, "api"),
		balancerName(cluster, "internal"),
		balancerName(cluster, "bastion"),
	}
}

// balancerName is the name of a load balancer or target group. AWS lets none begin with "internal-".
func balancerName(cluster, name string) string {
	name = cluster + "-" + name
	if strings.HasPrefix(name, "internal-") {
		name = "k-" + name
	}

	return shortenName(name, maxBalancerName)
}

// roleTag is a role as tags and names spell it.
func roleTag(r v1alpha1.Role) string {
	switch r {
	case v1alpha1.RoleControlPlane:
		return "control-plane"
	case v1alpha1.RoleBastion:
		return "bastion"
	default:
		return "worker"
	}
}

// shortenName shortens a name that is too long: what is cut off stays told apart by a hash.
func shortenName(name string, limit int) string {
	if len(name) <= limit {
		return name
	}

	sum := sha256.Sum256([]byte(name))
	const hash = 8

	return name[:limit-hash-1] + "-" + hex.EncodeToString(sum[:])[:hash]
}
