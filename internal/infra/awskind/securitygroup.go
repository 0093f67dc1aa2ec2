// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// SecurityGroup is a set of firewall rules; the rules are resources of their own, so that groups can name each other (D1).
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
		IdentityAttribute:   "GroupId",
		Outputs:             []string{""},
		IDParameterType:     "AWS::EC2::SecurityGroup::Id",
		CloudFormationExtra: map[string]any{"SecurityGroupEgress": []any{denyAllEgressRule()}},
	}
}

// denyAllEgressRule is a rule that matches nothing. CloudFormation leaves EC2's own rule, which lets everything out, in a group
// that has no rule of its own; then a rule resource like it would be refused as a duplicate.
func denyAllEgressRule() map[string]any {
	return map[string]any{
		"IpProtocol":  "icmp",
		"FromPort":    int64(252),
		"ToPort":      int64(86),
		"CidrIp":      "255.255.255.255/32",
		"Description": "nothing",
	}
}

// SecurityGroupIngress allows traffic into a group. Ports are left out for IpProtocol -1.
type SecurityGroupIngress struct {
	Group       graph.Ref[SecurityGroup] `aws:"GroupId,immutable" tf:"security_group_id"`
	Protocol    string                   `aws:"IpProtocol,immutable"`
	FromPort    int                      `aws:"FromPort,immutable"`
	ToPort      int                      `aws:"ToPort,immutable"`
	CIDR        string                   `aws:"CidrIp,immutable" tf:"cidr_ipv4"`
	CIDRv6      string                   `aws:"CidrIpv6,immutable" tf:"cidr_ipv6"`
	PrefixList  string                   `aws:"SourcePrefixListId,immutable" tf:"prefix_list_id"`
	Source      graph.Ref[SecurityGroup] `aws:"SourceSecurityGroupId,immutable" tf:"referenced_security_group_id"`
	Description string                   `aws:"Description"`
}

// Kind implements [graph.Resource].
func (SecurityGroupIngress) Kind() graph.Kind {
	return graph.Kind{
		Name:              "security-group-ingress",
		Terraform:         "aws_vpc_security_group_ingress_rule",
		CloudFormation:    "AWS::EC2::SecurityGroupIngress",
		IdentityAttribute: "Id",
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

// SecurityGroupEgress allows traffic out of a group. Ports are left out for IpProtocol -1.
type SecurityGroupEgress struct {
	Group       graph.Ref[SecurityGroup] `aws:"GroupId,immutable" tf:"security_group_id"`
	Protocol    string                   `aws:"IpProtocol,immutable"`
	FromPort    int                      `aws:"FromPort,immutable"`
	ToPort      int                      `aws:"ToPort,immutable"`
	CIDR        string                   `aws:"CidrIp,immutable" tf:"cidr_ipv4"`
	CIDRv6      string                   `aws:"CidrIpv6,immutable" tf:"cidr_ipv6"`
	PrefixList  string                   `aws:"DestinationPrefixListId,immutable" tf:"prefix_list_id"`
	Destination graph.Ref[SecurityGroup] `aws:"DestinationSecurityGroupId,immutable" tf:"referenced_security_group_id"`
	Description string                   `aws:"Description"`
}

// Kind implements [graph.Resource].
func (SecurityGroupEgress) Kind() graph.Kind {
	return graph.Kind{
		Name:              "security-group-egress",
		Terraform:         "aws_vpc_security_group_egress_rule",
		CloudFormation:    "AWS::EC2::SecurityGroupEgress",
		IdentityAttribute: "Id",
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
