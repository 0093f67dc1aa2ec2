// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// VPC is a virtual private cloud.
type VPC struct {
	CIDR         string `aws:"CidrBlock,immutable"`       // such as 10.0.0.0/16
	DNSHostnames bool   `aws:"EnableDnsHostnames,always"` // instances get public DNS names
	DNSSupport   bool   `aws:"EnableDnsSupport,always"`   // the Amazon DNS server resolves names
	Tags         Tags   `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (VPC) Kind() graph.Kind {
	return graph.Kind{
		Name:            "vpc",
		Terraform:       "aws_vpc",
		CloudFormation:  "AWS::EC2::VPC",
		Outputs:         []string{""},
		IDParameterType: "AWS::EC2::VPC::Id",
		Lifecycle: graph.Lifecycle{
			Replacement:   graph.ForbidReplacement,
			ForbiddenHint: "a cluster keeps its network; create a new cluster for another one",
		},
	}
}

// InternetGateway connects a VPC to the internet once attached.
type InternetGateway struct {
	Tags Tags `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (InternetGateway) Kind() graph.Kind {
	return graph.Kind{
		Name:           "internet-gateway",
		Terraform:      "aws_internet_gateway",
		CloudFormation: "AWS::EC2::InternetGateway",
	}
}

// GatewayAttachment attaches an internet gateway to a VPC.
type GatewayAttachment struct {
	VPC     graph.Ref[VPC]             `aws:"VpcId,immutable"`
	Gateway graph.Ref[InternetGateway] `aws:"InternetGatewayId"` // the gateway to attach
}

// Kind implements [graph.Resource].
func (GatewayAttachment) Kind() graph.Kind {
	return graph.Kind{
		Name:           "gateway-attachment",
		Terraform:      "aws_internet_gateway_attachment",
		CloudFormation: "AWS::EC2::VPCGatewayAttachment",
		KeyProperties:  []string{"VpcId", "InternetGatewayId"},
	}
}

// Subnet is an address range of a VPC in one availability zone.
type Subnet struct {
	VPC         graph.Ref[VPC] `aws:"VpcId,immutable"`
	CIDR        string         `aws:"CidrBlock,immutable"`
	Zone        string         `aws:"AvailabilityZone,immutable"`             // such as us-east-1a
	MapPublicIP bool           `aws:"MapPublicIpOnLaunch,always" cfn:"false"` // public subnets only
	Tags        Tags           `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (Subnet) Kind() graph.Kind {
	return graph.Kind{
		Name:            "subnet",
		Terraform:       "aws_subnet",
		CloudFormation:  "AWS::EC2::Subnet",
		Outputs:         []string{""},
		IDParameterType: "AWS::EC2::Subnet::Id",
		Lifecycle:       graph.Lifecycle{Replacement: graph.ForbidReplacement, ForbiddenHint: renameHint},
	}
}

// EIP is an Elastic IP address: a public IPv4 address that stays allocated to the account.
type EIP struct {
	Domain string `aws:"Domain"` // vpc
	Tags   Tags   `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (EIP) Kind() graph.Kind {
	return graph.Kind{
		Name:                 "eip",
		Terraform:            "aws_eip",
		CloudFormation:       "AWS::EC2::EIP",
		IdentityAttribute:    "AllocationId",
		ImplicitDependencies: []string{"gateway-attachment"},
		Attributes:           map[string]string{"PublicIp": "public_ip"},
		Lifecycle:            graph.Lifecycle{Replacement: graph.CreateFirst},
	}
}

// NATGateway gives machines in private subnets outbound internet access.
type NATGateway struct {
	Subnet     graph.Ref[Subnet] `aws:"SubnetId,immutable"`     // a public one
	Allocation graph.Ref[EIP]    `aws:"AllocationId,immutable"` // its public address
	Tags       Tags              `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (NATGateway) Kind() graph.Kind {
	return graph.Kind{
		Name:                 "nat-gateway",
		Terraform:            "aws_nat_gateway",
		CloudFormation:       "AWS::EC2::NatGateway",
		ImplicitDependencies: []string{"gateway-attachment"},
	}
}

// RouteTable is a set of routes, used by the subnets that are associated with it.
type RouteTable struct {
	VPC  graph.Ref[VPC] `aws:"VpcId,immutable"`
	Tags Tags           `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (RouteTable) Kind() graph.Kind {
	return graph.Kind{
		Name:           "route-table",
		Terraform:      "aws_route_table",
		CloudFormation: "AWS::EC2::RouteTable",
		Lifecycle:      graph.Lifecycle{Replacement: graph.CreateFirst},
	}
}

// Route routes a destination through an internet gateway, a NAT gateway or a peering connection: exactly one
// is set.
type Route struct {
	Table       graph.Ref[RouteTable]      `aws:"RouteTableId,immutable"`
	Destination string                     `aws:"DestinationCidrBlock,immutable"` // a CIDR
	Gateway     graph.Ref[InternetGateway] `aws:"GatewayId"`                      // for a public subnet
	NAT         graph.Ref[NATGateway]      `aws:"NatGatewayId"`                   // for a private subnet
	Peering     graph.Ref[VPCPeering]      `aws:"VpcPeeringConnectionId"`         // for a peered VPC
}

// Kind implements [graph.Resource].
func (Route) Kind() graph.Kind {
	return graph.Kind{
		Name:                 "route",
		Terraform:            "aws_route",
		CloudFormation:       "AWS::EC2::Route",
		KeyProperties:        []string{"RouteTableId", "DestinationCidrBlock"},
		ImplicitDependencies: []string{"gateway-attachment"},
		DeletedWith:          graph.Parent{Kind: "route-table"}, // its target may be deleted before it
	}
}

// RouteTableAssociation associates a subnet with a route table.
type RouteTableAssociation struct {
	Subnet graph.Ref[Subnet]     `aws:"SubnetId,immutable"`
	Table  graph.Ref[RouteTable] `aws:"RouteTableId,immutable"`
}

// Kind implements [graph.Resource].
func (RouteTableAssociation) Kind() graph.Kind {
	return graph.Kind{
		Name:              "route-table-association",
		Terraform:         "aws_route_table_association",
		CloudFormation:    "AWS::EC2::SubnetRouteTableAssociation",
		IdentityAttribute: "Id",
		KeyProperties:     []string{"SubnetId"},
		DeletedWith:       graph.Parent{Kind: "subnet", Blocks: []string{"route-table"}},
	}
}
