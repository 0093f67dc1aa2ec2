// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Wire is the service as the wire serves it.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:      "ec2",
		Protocol:  wire.EC2Query,
		Version:   "2016-11-15",
		Namespace: "http://ec2.amazonaws.com/doc/2016-11-15/",
		Authorize: s.authorizeRequest,
		Ops: slices.Concat(
			s.vpcOps(),
			s.subnetOps(),
			s.internetGatewayOps(),
			s.addressOps(),
			s.natGatewayOps(),
			s.routeTableOps(),
			s.vpcEndpointOps(),
			s.vpcPeeringOps(),
			s.securityGroupOps(),
			s.networkInterfaceOps(),
			s.zoneOps(),
			s.imageOps(),
			s.keyPairOps(),
			s.instanceTypeOps(),
			s.volumeOps(),
			s.snapshotOps(),
			s.launchTemplateOps(),
			s.launchOps(),
			s.instanceOps(),
			s.tagOps(),
		),
	}
}
