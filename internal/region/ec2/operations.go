// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// The operations on each resource type are methods of a small type such as vpcHandlers, which embeds the
// service. Its method ops lists them: one line for each operation, with the handler of the same name.
// Handlers run under the lock of the store and must not lock it again. The methods of [Service] that lock it
// are exported, for other services of the region. Functions that need only the state are methods of
// serviceState; those that need only the configuration are methods of [Config].

// Wire returns the operations of EC2 for the endpoint that serves them.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:      "ec2",
		Protocol:  wire.EC2QueryProtocol,
		Version:   "2016-11-15",
		Namespace: "http://ec2.amazonaws.com/doc/2016-11-15/",
		Authorize: s.authorizeRequest,
		Operations: slices.Concat(
			vpcHandlers{s}.ops(),
			dhcpOptionsHandlers{s}.ops(),
			subnetHandlers{s}.ops(),
			internetGatewayHandlers{s}.ops(),
			addressHandlers{s}.ops(),
			natGatewayHandlers{s}.ops(),
			routeTableHandlers{s}.ops(),
			vpcEndpointHandlers{s}.ops(),
			vpcPeeringHandlers{s}.ops(),
			securityGroupHandlers{s}.ops(),
			networkInterfaceHandlers{s}.ops(),
			zoneHandlers{s}.ops(),
			imageHandlers{s}.ops(),
			keyPairHandlers{s}.ops(),
			instanceTypeHandlers{s}.ops(),
			volumeHandlers{s}.ops(),
			snapshotHandlers{s}.ops(),
			launchTemplateHandlers{s}.ops(),
			launchHandlers{s}.ops(),
			fleetHandlers{s}.ops(),
			spotPriceHandlers{s}.ops(),
			instanceHandlers{s}.ops(),
			tagHandlers{s}.ops(),
		),
	}
}
