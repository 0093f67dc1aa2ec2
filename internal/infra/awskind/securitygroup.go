// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// SecurityGroup is a set of firewall rules. The rules are separate resources, so that groups can refer to
// each other.
type SecurityGroup struct {
	VPC         graph.Ref[VPC] `aws:"VpcId,immutable"`
	Name        string         `aws:"GroupName,immutable" tf:"name"`
	Description string         `aws:"GroupDescription,immutable" tf:"description"`
	Tags        Tags           `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (SecurityGroup) Kind() graph.Kind {
	return graph.Kind{
		Name:                "security-group",
		Terraform:           "aws_security_group",
		CloudFormation:      "AWS::EC2::SecurityGroup",
		Outputs:             []string{""},
		IDParameterType:     "AWS::EC2::SecurityGroup::Id",
		CloudFormationExtra: map[string]any{"SecurityGroupEgress": []any{denyAllEgressRule()}},
		Lifecycle:           graph.Lifecycle{Replacement: graph.ForbidReplacement, ForbiddenHint: renameHint},
	}
}

// denyAllEgressRule returns a rule that matches nothing. Without a rule in the template, CloudFormation keeps
// EC2's default rule, which allows all egress; EC2 then rejects an equal rule resource as a duplicate. No packet leaves a
// machine for this address; AWS's documentation has the same rule as its example.
func denyAllEgressRule() map[string]any {
	return map[string]any{"IpProtocol": "-1", "CidrIp": "127.0.0.1/32"}
}

// SecurityGroupIngress allows traffic into a group. Exactly one of CIDR, CIDRv6, PrefixList and Source is
// set.
type SecurityGroupIngress struct {
	// the group that has the rule
	Group graph.Ref[SecurityGroup] `aws:"GroupId,immutable" tf:"security_group_id"`
	// tcp, udp, icmp or a number; -1: all
	Protocol string `aws:"IpProtocol,immutable"`
	FromPort int    `aws:"FromPort,immutable"`                // unset for protocol -1; for icmp, the type
	ToPort   int    `aws:"ToPort,immutable"`                  // unset for protocol -1; for icmp, the code
	CIDR     string `aws:"CidrIp,immutable" tf:"cidr_ipv4"`   // an IPv4 range
	CIDRv6   string `aws:"CidrIpv6,immutable" tf:"cidr_ipv6"` // an IPv6 range
	// such as pl-0123
	PrefixList  string                   `aws:"SourcePrefixListId,immutable" tf:"prefix_list_id"`
	Source      graph.Ref[SecurityGroup] `aws:"SourceSecurityGroupId,immutable" tf:"referenced_security_group_id"`
	Description string                   `aws:"Description,whole"` // the only property that changes in place
}

// Kind implements [graph.Resource].
func (SecurityGroupIngress) Kind() graph.Kind {
	return graph.Kind{
		Name:              "security-group-ingress",
		Terraform:         "aws_vpc_security_group_ingress_rule",
		CloudFormation:    "AWS::EC2::SecurityGroupIngress",
		IdentityAttribute: "Id",
		DeletedWith:       graph.Parent{Kind: "security-group", Blocks: []string{"security-group"}},
		KeyProperties: []string{
			"GroupId",
			"IpProtocol",
			"FromPort",
			"ToPort",
			"CidrIp",
			"CidrIpv6",
			"SourcePrefixListId",
			"SourceSecurityGroupId",
		},
	}
}

// SecurityGroupEgress allows traffic out of a group. Exactly one of CIDR, CIDRv6, PrefixList and Destination
// is set.
type SecurityGroupEgress struct {
	// the group that has the rule
	Group graph.Ref[SecurityGroup] `aws:"GroupId,immutable" tf:"security_group_id"`
	// tcp, udp, icmp or a number; -1: all
	Protocol string `aws:"IpProtocol,immutable"`
	FromPort int    `aws:"FromPort,immutable"`                // unset for protocol -1; for icmp, the type
	ToPort   int    `aws:"ToPort,immutable"`                  // unset for protocol -1; for icmp, the code
	CIDR     string `aws:"CidrIp,immutable" tf:"cidr_ipv4"`   // an IPv4 range
	CIDRv6   string `aws:"CidrIpv6,immutable" tf:"cidr_ipv6"` // an IPv6 range
	// such as pl-0123
	PrefixList  string                   `aws:"DestinationPrefixListId,immutable" tf:"prefix_list_id"`
	Destination graph.Ref[SecurityGroup] `aws:"DestinationSecurityGroupId,immutable" tf:"referenced_security_group_id"`
	Description string                   `aws:"Description,whole"` // the only property that changes in place
}

// Kind implements [graph.Resource].
func (SecurityGroupEgress) Kind() graph.Kind {
	return graph.Kind{
		Name:              "security-group-egress",
		Terraform:         "aws_vpc_security_group_egress_rule",
		CloudFormation:    "AWS::EC2::SecurityGroupEgress",
		IdentityAttribute: "Id",
		DeletedWith:       graph.Parent{Kind: "security-group", Blocks: []string{"security-group"}},
		KeyProperties: []string{
			"GroupId",
			"IpProtocol",
			"FromPort",
			"ToPort",
			"CidrIp",
			"CidrIpv6",
			"DestinationPrefixListId",
			"DestinationSecurityGroupId",
		},
	}
}
