// SPDX-License-Identifier: Apache-2.0

package iampolicy

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// readStatements allows the calls of a plan. IAM does not restrict these operations of EC2, Elastic Load
// Balancing and Auto Scaling to resources; it does for IAM and KMS.
func (s policyBuilder) readStatements() []Statement {
	out := []Statement{
		newStatement("Read", slices.Concat(
			qualifyActions(
				"ec2", "DescribeAddresses", "DescribeAvailabilityZones", "DescribeImages",
				"DescribeInternetGateways",
				"DescribeKeyPairs", "DescribeLaunchTemplateVersions", "DescribeLaunchTemplates",
				"DescribeNatGateways", "DescribeRouteTables", "DescribeSecurityGroupRules",
				"DescribeSecurityGroups", "DescribeSubnets", "DescribeTags", "DescribeVolumes",
				"DescribeVpcAttribute", "DescribeVpcEndpoints", "DescribeVpcPeeringConnections",
				"DescribeVpcs",
			),
			qualifyActions(
				"elasticloadbalancing", "DescribeListeners", "DescribeLoadBalancerAttributes",
				"DescribeLoadBalancers", "DescribeTags", "DescribeTargetGroupAttributes",
				"DescribeTargetGroups",
			),
			qualifyActions(
				"autoscaling", "DescribeAutoScalingGroups", "DescribeLifecycleHooks",
			),
			qualifyActions("iam", "ListInstanceProfiles", "ListRoles"),
			qualifyActions("kms", "ListAliases", "ListKeys"),
			qualifyActions("route53", "ListHostedZones"),
		), []string{"*"}, nil),
		newStatement(
			"ReadRoles",
			qualifyActions("iam", "GetRole", "GetRolePolicy", "ListAttachedRolePolicies", "ListRolePolicies"),
			[]string{s.iamARN("role"), s.iamARN("instance-profile")},
			nil,
		),
		newStatement(
			"ReadKeys",
			qualifyActions("kms", "DescribeKey", "GetKeyPolicy", "GetKeyRotationStatus", "ListGrants", "ListResourceTags"),
			[]string{s.regionalARN("kms", "key/*")},
			nil,
		),
		// IAM does not restrict them to resources. Without them, quotas are not checked.
		newStatement(
			"ReadQuotas",
			slices.Concat(
				qualifyActions("servicequotas", "GetServiceQuota"),
				qualifyActions("iam", "GetAccountSummary"),
			),
			[]string{"*"},
			nil,
		),
		newStatement(
			"ReadImages",
			qualifyActions("ssm", "GetParameter"),
			[]string{"arn:" + s.Partition + ":ssm:" + s.Region + "::parameter/aws/service/*"},
			nil,
		),
	}

	return append(out, s.conditionalReadStatements()...)
}

// conditionalReadStatements allows the calls of a plan that only some clusters need.
func (s policyBuilder) conditionalReadStatements() []Statement {
	var out []Statement
	if s.UnknownTypes {
		out = append(
			out,
			newStatement(
				"ReadTypes",
				qualifyActions("ec2", "DescribeInstanceTypes"),
				[]string{"*"},
				nil,
			),
		)
	}

	if len(s.DNSNames) > 0 || s.CreatesZones {
		out = append(
			out,
			newStatement(
				"ReadZones",
				qualifyActions("route53", "GetHostedZone", "ListResourceRecordSets", "ListTagsForResources"),
				[]string{s.hostedZoneARN("*")},
				nil,
			),
		)
	}

	out = append(out, s.existingReadStatements()...)
	if s.Issuer != "" {
		out = append(out, s.issuerReadStatements()...)
	}

	if s.Function != "" {
		out = append(out, s.functionReadStatements()...)
	}

	if s.HasTopic {
		out = append(out, s.topicReadStatements()...)
	}

	return out
}

// networkStatements allows creating, changing and deleting networks. Creating a resource in a VPC or subnet
// also needs the statement Change for that VPC or subnet, so that it is not possible in other networks.
func (s policyBuilder) networkStatements() []Statement {
	return []Statement{
		newStatement(
			"CreateResources",
			qualifyActions(
				"ec2", "AllocateAddress", "CreateInternetGateway", "CreateLaunchTemplate",
				"CreateVolume", "CreateVpc", "ImportKeyPair",
			),
			s.ec2ARNs("elastic-ip", "internet-gateway", "key-pair", "launch-template", "volume", "vpc"),
			s.requestHasClusterTag(),
		),
		newStatement(
			"CreateInVPC",
			qualifyActions("ec2", "CreateRouteTable", "CreateSecurityGroup", "CreateSubnet"),
			s.ec2ARNs("route-table", "security-group", "subnet"),
			s.requestHasClusterTag(),
		),
		newStatement(
			"CreateInSubnet",
			qualifyActions("ec2", "CreateNatGateway", "CreateVpcEndpoint"),
			s.ec2ARNs("natgateway", "vpc-endpoint"),
			s.requestHasClusterTag(),
		),
		newStatement(
			"TagOnCreate",
			qualifyActions("ec2", "CreateTags"),
			[]string{s.regionalARN("ec2", "*/*")},
			condition{
				"StringEquals": {"aws:RequestTag/" + awskind.TagCluster: {s.Cluster}},
				"StringLike":   {"ec2:CreateAction": {"*"}},
			},
		),
		newStatement(
			"Change",
			qualifyActions(
				"ec2", "AssociateRouteTable", "AttachInternetGateway",
				"AuthorizeSecurityGroupEgress", "AuthorizeSecurityGroupIngress",
				"CreateLaunchTemplateVersion", "CreateNatGateway", "CreateRoute",
				"CreateRouteTable", "CreateSecurityGroup", "CreateSubnet", "CreateTags",
				"CreateVpcEndpoint", "DeleteInternetGateway", "DeleteKeyPair",
				"DeleteLaunchTemplate", "DeleteLaunchTemplateVersions", "DeleteNatGateway",
				"DeleteRoute", "DeleteRouteTable", "DeleteSubnet", "DeleteTags", "DeleteVpc",
				"DeleteVpcEndpoints", "DetachInternetGateway", "DisassociateRouteTable",
				"ModifyLaunchTemplate", "ModifySecurityGroupRules", "ModifySubnetAttribute",
				"ModifyVolume", "ModifyVpcAttribute", "ModifyVpcEndpoint", "ReleaseAddress",
				"ReplaceRoute", "RunInstances", "TerminateInstances",
			),
			[]string{s.regionalARN("ec2", "*/*")},
			s.staysInCluster(),
		),
		// A rule has no tags; IAM also evaluates the call for its security group, which has.
		newStatement(
			"ChangeRules",
			qualifyActions(
				"ec2", "ModifySecurityGroupRules", "RevokeSecurityGroupEgress",
				"RevokeSecurityGroupIngress",
			),
			s.ec2ARNs("security-group-rule"),
			nil,
		),
	}
}

// endpointStatements allows what EC2 asks Route 53 for when an endpoint gets private DNS names. The hosted zone is of AWS, and
// has no known ARN. A cluster whose zone Slipway creates has the right by [policyBuilder.dnsStatements].
func (s policyBuilder) endpointStatements() []Statement {
	if !s.InterfaceEndpoints || s.CreatesZones {
		return nil
	}

	return []Statement{
		newStatement(
			"EndpointNames",
			qualifyActions("route53", "AssociateVPCWithHostedZone"),
			[]string{"*"},
			nil,
		),
	}
}

// peeringStatements allows peering the cluster's VPC with others. Of the others, only the route tables in the
// manifest can be changed.
func (s policyBuilder) peeringStatements() []Statement {
	if len(s.PeerVPCs) == 0 {
		return nil
	}

	out := []Statement{
		newStatement(
			"CreatePeering",
			qualifyActions("ec2", "CreateVpcPeeringConnection"),
			s.ec2ARNs("vpc-peering-connection"),
			s.requestHasClusterTag(),
		),
		newStatement(
			"ChangePeering",
			qualifyActions(
				"ec2", "AcceptVpcPeeringConnection", "CreateVpcPeeringConnection",
				"DeleteVpcPeeringConnection",
			),
			s.ec2ARNs("vpc", "vpc-peering-connection"),
			s.resourceHasClusterTag(),
		),
		newStatement(
			"AcceptPeering",
			qualifyActions("ec2", "AcceptVpcPeeringConnection"),
			s.arnsByID("vpc/", s.PeerVPCs),
			nil,
		),
	}
	if len(s.RouteTables) > 0 {
		out = append(
			out,
			newStatement(
				"ChangePeerRoutes",
				qualifyActions("ec2", "CreateRoute", "DeleteRoute", "ReplaceRoute"),
				s.arnsByID("route-table/", s.RouteTables),
				nil,
			),
		)
	}

	return out
}

// hostedZoneARN returns the ARN of a hosted zone, which has neither a region nor an account.
func (s policyBuilder) hostedZoneARN(id string) string {
	return "arn:" + s.Partition + ":route53:::hostedzone/" + id
}

// dnsStatements allows changing the records of the cluster's DNS names. IAM has no condition on tags of
// hosted zones, so an operator who may create a zone may also delete any empty zone.
func (s policyBuilder) dnsStatements() []Statement {
	var out []Statement
	if s.CreatesZones {
		out = append(
			out,
			newStatement(
				"CreateZone",
				qualifyActions("route53", "CreateHostedZone"),
				[]string{"*"},
				nil,
			),
			newStatement(
				"ChangeZones",
				qualifyActions(
					"route53", "AssociateVPCWithHostedZone", "ChangeTagsForResource",
					"DeleteHostedZone", "DisassociateVPCFromHostedZone", "UpdateHostedZoneComment",
				),
				[]string{s.hostedZoneARN("*")},
				nil,
			),
		)
	}

	if len(s.DNSNames) == 0 {
		return out
	}

	zones := []string{s.hostedZoneARN("*")}
	if len(s.HostedZones) > 0 {
		zones = nil
		for _, id := range s.HostedZones {
			zones = append(zones, s.hostedZoneARN(id))
		}
	}

	return append(out, newStatement(
		"ChangeRecords",
		qualifyActions("route53", "ChangeResourceRecordSets"),
		zones,
		condition{
			"ForAllValues:StringEquals": {"route53:ChangeResourceRecordSetsNormalizedRecordNames": s.DNSNames},
		},
	))
}
