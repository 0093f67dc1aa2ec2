// SPDX-License-Identifier: Apache-2.0

package iampolicy

import "github.com/slipway-k8s/slipway/internal/infra/awskind"

// The tags that the Amazon VPC CNI gives its network interfaces.
const (
	tagCNICluster  = "cluster.k8s.amazonaws.com/name"
	tagCNIOwner    = "eks:eni:owner"
	tagCNICreated  = "node.k8s.amazonaws.com/createdAt"
	tagCNIInstance = "node.k8s.amazonaws.com/instance_id"
)

// BuildVPCCNIPolicy returns the policy of the role of the Amazon VPC CNI in a cluster (docs/design/0030-vpc-cni.md). It
// may create interfaces with the cluster's tag in the cluster's subnets with the cluster's security groups, attach them to
// the cluster's machines, and give addresses to these and to the machines' own.
func BuildVPCCNIPolicy(partition, cluster string) Policy {
	s := policyBuilder{Input{Partition: partition}}

	return Policy{Version: policyVersion, Statement: s.vpcCNIStatements(cluster)}
}

// boundaryOfVPCCNI allows what [BuildVPCCNIPolicy] does in the cluster of a role, and nothing else.
func (s policyBuilder) boundaryOfVPCCNI() []Statement {
	if !s.VPCCNI {
		return nil
	}

	return s.vpcCNIStatements(clusterOfRole)
}

func (s policyBuilder) vpcCNIStatements(cluster string) []Statement {
	resource := func(kind string) string { return "arn:" + s.Partition + ":ec2:*:*:" + kind + "/*" }
	interfaces := []string{resource("network-interface")}
	isNamed := "aws:RequestTag/" + tagCNICluster
	isClusters := stringEquals("aws:ResourceTag/"+awskind.TagCluster, cluster)
	onlyTags := func(keys ...string) map[string][]string { return map[string][]string{"aws:TagKeys": keys} }

	return []Statement{
		newStatement(
			"CNIFind",
			qualifyActions("ec2", "DescribeInstanceTypes", "DescribeInstances", "DescribeNetworkInterfaces", "DescribeSubnets"),
			[]string{"*"},
			nil,
		),
		newStatement(
			"CNICreateIn",
			qualifyActions("ec2", "CreateNetworkInterface"),
			[]string{resource("security-group"), resource("subnet")},
			isClusters,
		),
		newStatement(
			"CNICreate",
			qualifyActions("ec2", "CreateNetworkInterface"),
			interfaces,
			stringEquals(isNamed, cluster),
		),
		newStatement("CNITagNew", qualifyActions("ec2", "CreateTags"), interfaces, condition{
			"StringEquals":              {"ec2:CreateAction": {"CreateNetworkInterface"}, isNamed: {cluster}},
			"ForAllValues:StringEquals": onlyTags(tagCNICluster, tagCNIOwner, tagCNICreated, tagCNIInstance),
		}),
		newStatement("CNITagMachines", qualifyActions("ec2", "CreateTags"), interfaces, condition{
			"StringEquals":              {"aws:ResourceTag/" + awskind.TagCluster: {cluster}, isNamed: {cluster}},
			"ForAllValues:StringEquals": onlyTags(tagCNICluster, tagCNIOwner, tagCNIInstance),
		}),
		newStatement(
			"CNIChange",
			qualifyActions(
				"ec2", "AssignPrivateIpAddresses", "AttachNetworkInterface", "DeleteNetworkInterface",
				"DetachNetworkInterface", "ModifyNetworkInterfaceAttribute", "UnassignPrivateIpAddresses",
			),
			interfaces,
			stringEquals("aws:ResourceTag/"+tagCNICluster, cluster),
		),
		newStatement(
			"CNIAttach",
			qualifyActions("ec2", "AttachNetworkInterface", "DetachNetworkInterface", "ModifyNetworkInterfaceAttribute"),
			[]string{resource("instance"), resource("security-group")},
			isClusters,
		),
	}
}
