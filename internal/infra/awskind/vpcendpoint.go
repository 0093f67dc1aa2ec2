// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// The values of Type of a [VPCEndpoint].
const (
	EndpointGateway   = "Gateway"
	EndpointInterface = "Interface"
)

// VPCEndpoint connects a VPC to one AWS service without internet access: a Gateway endpoint through route
// tables, an Interface endpoint through addresses of the VPC under the service's own DNS name.
type VPCEndpoint struct {
	VPC graph.Ref[VPC] `aws:"VpcId,immutable"`
	// such as com.amazonaws.us-east-1.ec2
	Service string `aws:"ServiceName,immutable"`
	// [EndpointGateway] or [EndpointInterface]
	Type        string                  `aws:"VpcEndpointType,immutable"`
	RouteTables []graph.Ref[RouteTable] `aws:"RouteTableIds,set"` // of a Gateway endpoint
	// of an Interface endpoint, like the fields below
	Subnets        []graph.Ref[Subnet]        `aws:"SubnetIds,set"`
	SecurityGroups []graph.Ref[SecurityGroup] `aws:"SecurityGroupIds,set"`
	// resolve the service's name to the endpoint
	PrivateDNS bool `aws:"PrivateDnsEnabled"`
	Tags       Tags `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (VPCEndpoint) Kind() graph.Kind {
	return graph.Kind{
		Name:           "vpc-endpoint",
		Terraform:      "aws_vpc_endpoint",
		CloudFormation: "AWS::EC2::VPCEndpoint",
	}
}
