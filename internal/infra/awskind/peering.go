// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// VPCPeering is a peering connection with another VPC of the same account and region.
type VPCPeering struct {
	VPC  graph.Ref[VPC] `aws:"VpcId,immutable"`     // the cluster's
	Peer graph.Ref[VPC] `aws:"PeerVpcId,immutable"` // the other one, which Slipway does not manage
	// Accepted is true once the peering connection is active. CloudFormation accepts it by itself.
	Accepted bool `aws:"Accepted" tf:"auto_accept" cfn:"-"`
	Tags     Tags `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (VPCPeering) Kind() graph.Kind {
	return graph.Kind{
		Name:           "vpc-peering",
		Terraform:      "aws_vpc_peering_connection",
		CloudFormation: "AWS::EC2::VPCPeeringConnection",
	}
}
