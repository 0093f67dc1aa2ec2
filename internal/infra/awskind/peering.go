// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// VPCPeering connects a VPC with another one of the same account and region.
type VPCPeering struct {
	VPC  graph.Ref[VPC] `aws:"VpcId,immutable"`
	Peer graph.Ref[VPC] `aws:"PeerVpcId,immutable"`
	// Accepted says that it works. CloudFormation accepts it by itself.
	Accepted bool `aws:"Accepted" tf:"auto_accept" cfn:"-"`
	Tags     Tags `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (VPCPeering) Kind() graph.Kind {
	return graph.Kind{
		Name: "vpc-peering", Terraform: "aws_vpc_peering_connection", CloudFormation: "AWS::EC2::VPCPeeringConnection",
	}
}
