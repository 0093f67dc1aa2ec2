// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// The types of a [VPCEndpoint].
const (
	EndpointGateway   = "Gateway"
	EndpointInterface = "Interface"
)

// VPCEndpoint leads a VPC to one AWS service without a way out: a Gateway by route tables, an Interface by addresses of
// the VPC under the service's own name.
type VPCEndpoint struct {
	VPC            graph.Ref[VPC]             `aws:"VpcId,immutable"`
	Service        string                     `aws:"ServiceName,immutable"` // such as com.amazonaws.us-east-1.ec2
	Type           string                     `aws:"VpcEndpointType,immutable"`
	RouteTables    []graph.Ref[RouteTable]    `aws:"RouteTableIds,set"`
	Subnets        []graph.Ref[Subnet]        `aws:"SubnetIds,set"`
	SecurityGroups []graph.Ref[SecurityGroup] `aws:"SecurityGroupIds,set"`
	PrivateDNS     bool                       `aws:"PrivateDnsEnabled"`
	Tags           Tags                       `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (VPCEndpoint) Kind() graph.Kind {
	return graph.Kind{
		Name:           "vpc-endpoint",
		Terraform:      "aws_vpc_endpoint",
		CloudFormation: "AWS::EC2::VPCEndpoint",
	}
}
