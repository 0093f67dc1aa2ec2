// SPDX-License-Identifier: Apache-2.0

package model

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// The maximal lengths of names in AWS, in characters.
const (
	maxRoleName     = 64
	maxBalancerName = 32
	maxFunctionName = 64
)

// RoleName returns the name of the IAM role and of the instance profile of machines of role. It contains the
// region: IAM is global, and another region may have a cluster of the same name.
func RoleName(cluster, region string, role v1alpha1.Role) string {
	return shortenName(cluster+"."+roleTag(role)+"."+region, maxRoleName)
}

// SlotRoleName returns the name of the IAM role and of the instance profile of a control-plane slot. An older slipway gave
// all slots the role [RoleName].
func SlotRoleName(cluster, region, slot string) string {
	return shortenName(cluster+"."+slotRoleName(slot)+"."+region, maxRoleName)
}

// slotRoleName returns the name of a slot's role in the graph.
func slotRoleName(slot string) string { return roleTag(v1alpha1.RoleControlPlane) + "-" + slot }

// GroupRoleName returns the name of the IAM role and of the instance profile of a worker group with its own
// permissions.
func GroupRoleName(cluster, region, group string) string {
	return shortenName(cluster+".worker-"+group+"."+region, maxRoleName)
}

// ServiceAccountRoleName returns the name of the IAM role of a service account.
func ServiceAccountRoleName(cluster, region, namespace, name string) string {
	return shortenName(cluster+".sa-"+namespace+"."+name+"."+region, maxRoleName)
}

// ServiceAccountRoleARN returns the ARN of the IAM role of a service account of a cluster.
func ServiceAccountRoleARN(partition, account string, c v1alpha1.Cluster, p v1alpha1.ServiceAccountPermissions) string {
	name := c.Metadata.Name
	region := c.Spec.CloudProvider.AWS.Region

	return "arn:" + partition + ":iam::" + account + ":role" + RolePath(name, region) +
		ServiceAccountRoleName(name, region, p.Namespace, p.Name)
}

// VPCCNIRoleARN returns the ARN of the IAM role of the Amazon VPC CNI of a cluster.
func VPCCNIRoleARN(partition, account string, c v1alpha1.Cluster) string {
	return ServiceAccountRoleARN(partition, account, c, vpcCNIAccount())
}

// KarpenterRoleName returns the name of the IAM role of Karpenter's service account.
func KarpenterRoleName(cluster, region string) string {
	p := karpenterAccount()

	return ServiceAccountRoleName(cluster, region, p.Namespace, p.Name)
}

// KarpenterRoleARN returns the ARN of the IAM role of Karpenter's service account of a cluster.
func KarpenterRoleARN(partition, account string, c v1alpha1.Cluster) string {
	return ServiceAccountRoleARN(partition, account, c, karpenterAccount())
}

// FunctionRoleName returns the name of the IAM role of the function that keeps the DNS records of etcd's members.
func FunctionRoleName(cluster, region string) string {
	return shortenName(cluster+".dns."+region, maxRoleName)
}

// FunctionName returns the name of the function that keeps the DNS records of etcd's members, and of its rule. The names of
// functions have no dots: a hash keeps the names of a.b and a-b apart.
func FunctionName(cluster string) string {
	name := "slipway-dns-" + strings.ReplaceAll(cluster, ".", "-")
	if strings.Contains(cluster, ".") {
		sum := sha256.Sum256([]byte(cluster))
		name += "-" + hex.EncodeToString(sum[:])[:nameHash]
	}

	return shortenName(name, maxFunctionName)
}

// HasOwnRole reports whether a group has its own IAM role.
func HasOwnRole(ig v1alpha1.InstanceGroup) bool {
	return len(ig.Spec.IAM.Policies) > 0 || ig.Spec.IAM.InlinePolicy != ""
}

// RolePath returns the IAM path of a cluster's roles and profiles, so that one call lists them.
func RolePath(cluster, region string) string { return "/slipway/" + region + "/" + cluster + "/" }

// KeyAliasName returns the alias of a cluster's KMS key.
func KeyAliasName(cluster string) string { return "alias/slipway/" + cluster }

// SlotGroupName returns the name of the Auto Scaling group of a control-plane slot.
func SlotGroupName(cluster, group, slot string) string { return group + "-" + slot + "." + cluster }

// GroupName returns the name of the Auto Scaling group of a worker group.
func GroupName(cluster, group string) string { return group + "." + cluster }

// LoadBalancerNames returns the names of the load balancers that a cluster can have.
func LoadBalancerNames(cluster string) []string {
	return []string{
		balancerName(cluster, "api"),
		balancerName(cluster, "internal"),
		BastionBalancerName(cluster),
	}
}

// TargetGroupNames returns the names of the target groups that a cluster can have.
func TargetGroupNames(cluster string) []string {
	return []string{
		balancerName(cluster, "api"),
		balancerName(cluster, "api-internal"),
		balancerName(cluster, "bastion"),
		balancerName(cluster, "join"),
	}
}

// BastionBalancerName returns the name of the load balancer of a cluster's bastions.
func BastionBalancerName(cluster string) string { return balancerName(cluster, "bastion") }

// balancerName returns the name of a load balancer or target group. AWS rejects names that begin with
// "internal-".
func balancerName(cluster, name string) string {
	name = cluster + "-" + name
	if strings.HasPrefix(name, "internal-") {
		name = "k-" + name
	}

	return shortenName(name, maxBalancerName)
}

// roleTag returns a role as it is spelled in tags and names.
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

// shortenName shortens a name to limit characters: a hash of the whole name replaces the end.
func shortenName(name string, limit int) string {
	if len(name) <= limit {
		return name
	}

	sum := sha256.Sum256([]byte(name))

	return name[:limit-nameHash-1] + "-" + hex.EncodeToString(sum[:])[:nameHash]
}

// nameHash is the number of hex digits of a hash in a name.
const nameHash = 8
