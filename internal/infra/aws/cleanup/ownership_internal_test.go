// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

func TestClassifyOwnership(t *testing.T) {
	for _, tc := range []struct {
		name  string
		tags  awskind.Tags
		want  ownership
		maker string
	}{
		{"no tag", awskind.Tags{"Name": "x"}, ownedByNone, ""},
		{"the cloud controller manager's", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "kubernetes.io/service-name": "default/web"}, ownedByCluster, "service default/web"},
		{"its older tag", awskind.Tags{"KubernetesCluster": "prod"}, ownedByCluster, ""},
		{"the load balancer controller's service", awskind.Tags{"elbv2.k8s.aws/cluster": "prod", "service.k8s.aws/stack": "shop/cart", "service.k8s.aws/resource": "LoadBalancer"}, ownedByCluster, "service shop/cart"},
		{"its ingress", awskind.Tags{"elbv2.k8s.aws/cluster": "prod", "ingress.k8s.aws/stack": "shop/front"}, ownedByCluster, "ingress shop/front"},
		{"its gateway", awskind.Tags{"elbv2.k8s.aws/cluster": "prod", "gateway.k8s.aws.nlb/stack": "shop/edge"}, ownedByCluster, "gateway shop/edge"},
		{"its shared group", awskind.Tags{"elbv2.k8s.aws/cluster": "prod", "elbv2.k8s.aws/resource": "backend-sg"}, ownedByCluster, "the AWS load balancer controller"},
		{"version 1", awskind.Tags{"ingress.k8s.aws/cluster": "prod"}, ownedByCluster, "the AWS load balancer controller"},
		{"the EBS driver's volume", awskind.Tags{
			"ebs.csi.aws.com/cluster": "true", "kubernetes.io/cluster/prod": "owned", "CSIVolumeName": "pvc-1",
			"kubernetes.io/created-for/pvc/namespace": "db", "kubernetes.io/created-for/pvc/name": "data-0",
		}, ownedByCluster, "claim db/data-0"},
		{"the EBS driver's without a cluster", awskind.Tags{"ebs.csi.aws.com/cluster": "true", "CSIVolumeName": "pvc-1"}, ownedByNone, "persistent volume pvc-1"},
		{"a snapshot", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "CSIVolumeSnapshotName": "snap"}, ownedByCluster, "volume snapshot snap"},
		{"the VPC CNI's", awskind.Tags{"cluster.k8s.amazonaws.com/name": "prod", "node.k8s.amazonaws.com/instance_id": "i-1"}, ownedByCluster, "the VPC CNI of i-1"},
		{"Karpenter's", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "karpenter.sh/nodepool": "default"}, ownedByCluster, "Karpenter's node pool default"},
		{"a machine of ours", awskind.Tags{"slipway.dev/cluster": "prod", "slipway.dev/group": "nodes"}, ownedByCluster, "instance group nodes"},

		{"Karpenter's of today", awskind.Tags{
			"kubernetes.io/cluster/prod": "owned", "karpenter.sh/nodepool": "nodes", "eks:eks-cluster-name": "prod", "slipway.dev/cluster": "prod",
		}, ownedByCluster, "Karpenter's node pool nodes"},
		{"Karpenter's, to check an EC2NodeClass", awskind.Tags{
			"kubernetes.io/cluster/prod": "owned", "karpenter.sh/nodepool": "", "eks:eks-cluster-name": "prod", "slipway.dev/cluster": "prod",
			"slipway.dev/group": "nodes",
		}, ownedByCluster, "instance group nodes"},
		{"Karpenter's in EKS's cluster of the same name", awskind.Tags{
			"kubernetes.io/cluster/prod": "owned", "karpenter.sh/nodepool": "nodes", "eks:eks-cluster-name": "prod",
		}, ownedByOther, "Karpenter's node pool nodes"},
		{"Karpenter's, to check an EC2NodeClass, in EKS's cluster of the same name", awskind.Tags{
			"kubernetes.io/cluster/prod": "owned", "karpenter.sh/nodepool": "", "eks:eks-cluster-name": "prod",
		}, ownedByOther, ""},
		{"Karpenter's of another cluster", awskind.Tags{
			"karpenter.sh/nodepool": "nodes", "eks:eks-cluster-name": "prod-2", "slipway.dev/cluster": "prod",
		}, ownedByOther, "Karpenter's node pool nodes"},

		{"a longer name", awskind.Tags{"kubernetes.io/cluster/prod-2": "owned"}, ownedByOther, ""},
		{"a longer name of the load balancer controller", awskind.Tags{"elbv2.k8s.aws/cluster": "prod-2"}, ownedByOther, "the AWS load balancer controller"},
		{"a shorter name", awskind.Tags{"KubernetesCluster": "pro"}, ownedByOther, ""},
		{"another case", awskind.Tags{"kubernetes.io/cluster/Prod": "owned"}, ownedByOther, ""},
		{"shared with us", awskind.Tags{"kubernetes.io/cluster/prod": "shared"}, ownedByOther, ""},
		{"shared, though a controller used it", awskind.Tags{"kubernetes.io/cluster/prod": "shared", "elbv2.k8s.aws/cluster": "prod"}, ownedByOther, "the AWS load balancer controller"},
		{"shared with another", awskind.Tags{"kubernetes.io/cluster/prod-2": "shared"}, ownedByNone, ""},
		{"ours, shared with another", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "kubernetes.io/cluster/prod-2": "shared"}, ownedByCluster, ""},
		{"owned by two", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "kubernetes.io/cluster/prod-2": "owned"}, ownedByOther, ""},
		{"two tags that disagree", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "elbv2.k8s.aws/cluster": "prod-2"}, ownedByOther, "the AWS load balancer controller"},
		{"EKS's cluster of the same name", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "aws:eks:cluster-name": "prod"}, ownedByOther, ""},
		{"another one of ours", awskind.Tags{"slipway.dev/cluster": "prod-2", "kubernetes.io/cluster/prod": "owned"}, ownedByOther, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := classifyOwnership(tc.tags, "prod"); got != tc.want {
				t.Errorf("ownership is %d, want %d", got, tc.want)
			}
			if got := creatorFromTags(tc.tags); got != tc.maker {
				t.Errorf("creator is %q, want %q", got, tc.maker)
			}
		})
	}
}
