// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

func TestClaimOf(t *testing.T) {
	for _, tc := range []struct {
		name  string
		tags  awskind.Tags
		want  claim
		maker string
	}{
		{"no tag", awskind.Tags{"Name": "x"}, nobodys, ""},
		{"the cloud controller manager's", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "kubernetes.io/service-name": "default/web"}, mine, "service default/web"},
		{"its older tag", awskind.Tags{"KubernetesCluster": "prod"}, mine, ""},
		{"the load balancer controller's service", awskind.Tags{"elbv2.k8s.aws/cluster": "prod", "service.k8s.aws/stack": "shop/cart", "service.k8s.aws/resource": "LoadBalancer"}, mine, "service shop/cart"},
		{"its ingress", awskind.Tags{"elbv2.k8s.aws/cluster": "prod", "ingress.k8s.aws/stack": "shop/front"}, mine, "ingress shop/front"},
		{"its gateway", awskind.Tags{"elbv2.k8s.aws/cluster": "prod", "gateway.k8s.aws.nlb/stack": "shop/edge"}, mine, "gateway shop/edge"},
		{"its shared group", awskind.Tags{"elbv2.k8s.aws/cluster": "prod", "elbv2.k8s.aws/resource": "backend-sg"}, mine, "the AWS load balancer controller"},
		{"version 1", awskind.Tags{"ingress.k8s.aws/cluster": "prod"}, mine, "the AWS load balancer controller"},
		{"the EBS driver's volume", awskind.Tags{
			"ebs.csi.aws.com/cluster": "true", "kubernetes.io/cluster/prod": "owned", "CSIVolumeName": "pvc-1",
			"kubernetes.io/created-for/pvc/namespace": "db", "kubernetes.io/created-for/pvc/name": "data-0",
		}, mine, "claim db/data-0"},
		{"the EBS driver's without a cluster", awskind.Tags{"ebs.csi.aws.com/cluster": "true", "CSIVolumeName": "pvc-1"}, nobodys, "persistent volume pvc-1"},
		{"a snapshot", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "CSIVolumeSnapshotName": "snap"}, mine, "volume snapshot snap"},
		{"the VPC CNI's", awskind.Tags{"cluster.k8s.amazonaws.com/name": "prod", "node.k8s.amazonaws.com/instance_id": "i-1"}, mine, "the VPC CNI of i-1"},
		{"Karpenter's", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "karpenter.sh/nodepool": "default"}, mine, "Karpenter's node pool default"},
		{"a machine of ours", awskind.Tags{"slipway.dev/cluster": "prod", "slipway.dev/group": "nodes"}, mine, "instance group nodes"},

		{"a longer name", awskind.Tags{"kubernetes.io/cluster/prod-2": "owned"}, others, ""},
		{"a longer name of the load balancer controller", awskind.Tags{"elbv2.k8s.aws/cluster": "prod-2"}, others, "the AWS load balancer controller"},
		{"a shorter name", awskind.Tags{"KubernetesCluster": "pro"}, others, ""},
		{"another case", awskind.Tags{"kubernetes.io/cluster/Prod": "owned"}, others, ""},
		{"shared with us", awskind.Tags{"kubernetes.io/cluster/prod": "shared"}, others, ""},
		{"shared, though a controller used it", awskind.Tags{"kubernetes.io/cluster/prod": "shared", "elbv2.k8s.aws/cluster": "prod"}, others, "the AWS load balancer controller"},
		{"shared with another", awskind.Tags{"kubernetes.io/cluster/prod-2": "shared"}, nobodys, ""},
		{"ours, shared with another", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "kubernetes.io/cluster/prod-2": "shared"}, mine, ""},
		{"owned by two", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "kubernetes.io/cluster/prod-2": "owned"}, others, ""},
		{"two tags that disagree", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "elbv2.k8s.aws/cluster": "prod-2"}, others, "the AWS load balancer controller"},
		{"EKS's cluster of the same name", awskind.Tags{"kubernetes.io/cluster/prod": "owned", "aws:eks:cluster-name": "prod"}, others, ""},
		{"another one of ours", awskind.Tags{"slipway.dev/cluster": "prod-2", "kubernetes.io/cluster/prod": "owned"}, others, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := claimOf(tc.tags, "prod"); got != tc.want {
				t.Errorf("claim is %d, want %d", got, tc.want)
			}
			if got := makerOf(tc.tags); got != tc.maker {
				t.Errorf("maker is %q, want %q", got, tc.maker)
			}
		})
	}
}
