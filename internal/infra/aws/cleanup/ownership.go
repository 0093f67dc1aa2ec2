// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// Tags with which programs in a cluster mark the resources that they create.
const (
	// clusterTagPrefix precedes the name of the cluster; the value is "owned" or "shared". The
	// cloud controller manager, the EBS driver and Karpenter set it.
	clusterTagPrefix = "kubernetes.io/cluster/"
	// tagLegacyCluster is set by old versions of the cloud controller manager and of the EBS
	// driver.
	tagLegacyCluster = "KubernetesCluster"
	// tagBalancerV2 is set by the AWS load balancer controller since version 2.
	tagBalancerV2 = "elbv2.k8s.aws/cluster"
	// tagBalancerV1 is set by version 1 of the AWS load balancer controller.
	tagBalancerV1 = "ingress.k8s.aws/cluster"
	// tagCNI is set by the VPC CNI.
	tagCNI = "cluster.k8s.amazonaws.com/name"
)

// namingTags returns the keys of the tags whose value is the name of a cluster.
func namingTags() []string {
	return []string{awskind.TagCluster, tagLegacyCluster, tagBalancerV2, tagBalancerV1, tagCNI}
}

// eksTags returns the keys of the tags that EKS sets. Its clusters may have the name of one of
// slipway's.
func eksTags() []string {
	return []string{
		"eks:cluster-name",
		"aws:eks:cluster-name",
		tagKarpenterCluster,
		"alpha.eksctl.io/cluster-name",
	}
}

// ownership is to whom the tags of a resource assign it. A greater value overrides a smaller one.
type ownership int

const (
	ownedByNone    ownership = iota // no tag names a cluster
	ownedByCluster                  // a tag names the cluster, and none names another one
	ownedByOther                    // a tag names another cluster, or the resource is shared
)

// classifyOwnership returns the owner of a resource. It is strict: names of clusters are compared
// as a whole, and a resource with the tags of two clusters belongs to neither.
func classifyOwnership(tags awskind.Tags, cluster string) ownership {
	owner := ownedByNone
	for k, v := range tags {
		if !isKarpenterOf(cluster, k, v, tags) {
			owner = max(owner, classifyOwnerTag(k, v, cluster))
		}
	}

	return owner
}

// classifyOwnerTag returns the owner that one tag names.
func classifyOwnerTag(key, value, cluster string) ownership {
	if slices.Contains(eksTags(), key) {
		return ownedByOther
	}

	name, role := strings.CutPrefix(key, clusterTagPrefix)
	switch {
	case role && name != cluster && value == "shared", !role && !slices.Contains(namingTags(), key):
		return ownedByNone
	case role && name == cluster && value == "owned", !role && value == cluster:
		return ownedByCluster
	}

	// Another cluster owns it, with the value "owned", or with an empty one as set by old versions;
	// or this cluster shares it.
	return ownedByOther
}

// creatorFromTags returns what created a resource according to its tags, such as "service
// default/web"; empty if they do not tell.
func creatorFromTags(tags awskind.Tags) string {
	for _, t := range []struct{ key, kind string }{
		{"service.k8s.aws/stack", "service"},
		{"kubernetes.io/service-name", "service"},
		{"ingress.k8s.aws/stack", "ingress"},
		{"gateway.k8s.aws.nlb/stack", "gateway"},
		{"gateway.k8s.aws.alb/stack", "gateway"},
		{"CSIVolumeSnapshotName", "volume snapshot"},
		{awskind.TagNodePool, "Karpenter's node pool"},
		{"node.k8s.amazonaws.com/instance_id", "the VPC CNI of"},
		{"slipway.dev/group", "instance group"},
		{awskind.TagSetAside, "slipway etcd move of slot"},
	} {
		if v := tags[t.key]; v != "" {
			return t.kind + " " + v
		}
	}

	if v := tags["kubernetes.io/created-for/pvc/name"]; v != "" {
		return "claim " + tags["kubernetes.io/created-for/pvc/namespace"] + "/" + v
	}

	switch {
	case tags["CSIVolumeName"] != "":
		return "persistent volume " + tags["CSIVolumeName"]
	case tags[tagBalancerV2] != "" || tags[tagBalancerV1] != "":
		return "the AWS load balancer controller"
	case tags[tagCNI] != "":
		return "the VPC CNI"
	}

	return ""
}

// formatNameTag returns the Name tag of a resource as a suffix, such as " named web"; empty without
// one.
func formatNameTag(tags awskind.Tags) string {
	if v := tags["Name"]; v != "" {
		return " named " + v
	}

	return ""
}
