// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// The tags by which programs in a cluster, and we, say whose a thing is.
const (
	clusterTagPrefix = "kubernetes.io/cluster/" // the cloud controller manager, the EBS driver, Karpenter: owned or shared
	tagLegacyCluster = "KubernetesCluster"      // the cloud controller manager and the EBS driver, as in the years before
	tagBalancerV2    = "elbv2.k8s.aws/cluster"  // the AWS load balancer controller, since version 2
	tagBalancerV1    = "ingress.k8s.aws/cluster"
	tagCNI           = "cluster.k8s.amazonaws.com/name" // the VPC CNI
)

// namingTags are the tags whose value is a cluster's name. EKS's own say that a thing is of an EKS cluster, which may
// bear the name of one of ours.
func namingTags() []string {
	return []string{awskind.TagCluster, tagLegacyCluster, tagBalancerV2, tagBalancerV1, tagCNI}
}

func eksTags() []string {
	return []string{
		"eks:cluster-name",
		"aws:eks:cluster-name",
		"eks:eks-cluster-name",
		"alpha.eksctl.io/cluster-name",
	}
}

// ownership says whose a thing is, from its tags alone.
type ownership int

const (
	ownedByNone    ownership = iota // no tag says
	ownedByCluster                  // some tag says our cluster, and none another one
	ownedByOther                    // a tag says another cluster, or that the thing is shared
)

// classifyOwnership is strict: whole names are compared, never beginnings, and a thing that two clusters claim is not ours.
func classifyOwnership(tags awskind.Tags, cluster string) ownership {
	is := ownedByNone
	for k, v := range tags {
		is = max(is, classifyOwnerTag(k, v, cluster))
	}

	return is
}

// classifyOwnerTag says whose a thing is that has one tag. What says more is the greater claim.
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

	return ownedByOther // of another cluster: "owned", or empty as old versions wrote it; or ours, but shared
}

// creatorFromTags says who made a thing, as its tags tell: the object in Kubernetes where they name one.
func creatorFromTags(tags awskind.Tags) string {
	for _, t := range []struct{ key, what string }{
		{"service.k8s.aws/stack", "service"},
		{"kubernetes.io/service-name", "service"},
		{"ingress.k8s.aws/stack", "ingress"},
		{"gateway.k8s.aws.nlb/stack", "gateway"},
		{"gateway.k8s.aws.alb/stack", "gateway"},
		{"CSIVolumeSnapshotName", "volume snapshot"},
		{"karpenter.sh/nodepool", "Karpenter's node pool"},
		{"node.k8s.amazonaws.com/instance_id", "the VPC CNI of"},
		{"slipway.dev/group", "instance group"},
	} {
		if v := tags[t.key]; v != "" {
			return t.what + " " + v
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

// formatNameTag is a thing's Name tag in words; empty without one.
func formatNameTag(tags awskind.Tags) string {
	if v := tags["Name"]; v != "" {
		return " named " + v
	}

	return ""
}
