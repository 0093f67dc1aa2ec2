// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// natGatewayHandlers serves NAT gateways.
type natGatewayHandlers struct{ *Service }

func (s natGatewayHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateNatGateway", s.createNATGateway),
		writeOperation(s.Service, "DeleteNatGateway", s.deleteNATGateway),
		readOperation(s.Service, "DescribeNatGateways", s.describeNATGateways),
	}
}

func (s natGatewayHandlers) createNATGateway(
	in *sdk.CreateNatGatewayInput,
) (*sdk.CreateNatGatewayOutput, error) {
	request := tokenRequest{"CreateNatGateway", in.ClientToken, in}
	answer := func(g *sdk.NatGateway) *sdk.CreateNatGatewayOutput {
		return &sdk.CreateNatGatewayOutput{NatGateway: g, ClientToken: in.ClientToken}
	}

	if out, err := repeatedAnswer(s.Service, request, s.st.NATs, answer); out != nil || err != nil {
		return out, err
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "natgateway")
	if err != nil {
		return nil, err
	}

	n, addr, err := s.st.checkNATGateway(in, s.cfg.Quotas.NATsPerZone)
	if err != nil {
		return nil, err
	}

	id := s.newID("nat")
	networkInterface, err := s.newNATGatewayInterface(n, id, str(in.PrivateIpAddress))
	if err != nil {
		return nil, err
	}

	na := &sdk.NatGatewayAddress{
		NetworkInterfaceId: networkInterface.NetworkInterfaceId,
		PrivateIp:          networkInterface.PrivateIpAddress,
		IsPrimary:          new(true),
		Status:             new("succeeded"),
	}
	kind := sdk.ConnectivityTypePrivate
	if addr != nil {
		kind = sdk.ConnectivityTypePublic
		addressHandlers(s).setAddressAssociation(addr, networkInterface)
		na.AllocationId = addr.AllocationId
		na.AssociationId = addr.AssociationId
		na.PublicIp = addr.PublicIp
	}

	g := &sdk.NatGateway{
		NatGatewayId:        new(id),
		SubnetId:            n.SubnetId,
		VpcId:               n.VpcId,
		State:               new(sdk.NatGatewayStatePending),
		ConnectivityType:    new(kind),
		CreateTime:          new(s.cfg.Now().UTC()),
		NatGatewayAddresses: []*sdk.NatGatewayAddress{na},
	}

	s.st.NATs[id] = g
	s.st.setTags(id, tags)
	g.Tags = s.st.tagList(id)
	s.scheduleTransition(transitionNATAvailable, id)

	return firstAnswer(s.Service, request, id, answer(g))
}

// newNATGatewayInterface creates the network interface of a NAT gateway; privateIP is empty for any free
// address.
func (s natGatewayHandlers) newNATGatewayInterface(
	subnet *sdk.Subnet,
	id, privateIP string,
) (*sdk.NetworkInterface, error) {
	return networkInterfaceHandlers(s).newNetworkInterface(interfaceSpec{
		subnet:      subnet,
		kind:        "nat_gateway",
		description: "Interface for NAT Gateway " + id,
		requester:   "amazon-nat",
		managed:     true,
		privateIP:   privateIP,
	})
}

// checkNATGateway checks a request for a NAT gateway and returns its subnet and its Elastic IP address, which
// is nil for a private gateway. limit is the quota for each zone.
func (st *serviceState) checkNATGateway(
	in *sdk.CreateNatGatewayInput,
	limit int,
) (*sdk.Subnet, *sdk.Address, error) {
	n, err := st.findSubnet(in.SubnetId)
	if err != nil {
		return nil, nil, err
	}

	if st.countZoneNATGateways(str(n.AvailabilityZone)) >= limit {
		return nil, nil, newErrorf(
			codeNATGatewayLimitExceeded,
			"Performing this operation would exceed the limit of %d NAT gateways",
			limit,
		)
	}

	if str(in.ConnectivityType) == sdk.ConnectivityTypePrivate {
		if in.AllocationId != nil {
			return nil, nil, newErrorf(
				codeInvalidParameterCombination,
				"AllocationId cannot be specified for a private NAT gateway",
			)
		}

		return n, nil, nil
	}

	addr, err := st.findAddress(in.AllocationId)
	if err != nil {
		return nil, nil, err
	}

	if addr.AssociationId != nil {
		return nil, nil, newErrorf(
			codeResourceAlreadyAssociated,
			"resource %s is already associated with associate-id %s",
			str(addr.AllocationId),
			str(addr.AssociationId),
		)
	}

	if st.vpcInternetGateway(str(n.VpcId)) == nil {
		return nil, nil, newErrorf(
			codeGatewayNotAttached,
			"Network %s has no Internet gateway attached",
			str(n.VpcId),
		)
	}

	return n, addr, nil
}

// countZoneNATGateways returns the number of pending and available NAT gateways in a zone.
func (st *serviceState) countZoneNATGateways(zone string) int {
	count := 0
	for _, g := range st.NATs {
		stays := str(g.State) == sdk.NatGatewayStatePending || str(g.State) == sdk.NatGatewayStateAvailable
		if n := st.Subnets[str(g.SubnetId)]; stays && n != nil && str(n.AvailabilityZone) == zone {
			count++
		}
	}

	return count
}

func (s natGatewayHandlers) deleteNATGateway(
	in *sdk.DeleteNatGatewayInput,
) (*sdk.DeleteNatGatewayOutput, error) {
	g := s.st.NATs[str(in.NatGatewayId)]
	if g == nil {
		return nil, newErrorf(
			codeNATGatewayNotFound,
			"The Nat Gateway %s was not found",
			str(in.NatGatewayId),
		)
	}

	if st := str(g.State); st != sdk.NatGatewayStateDeleting && st != sdk.NatGatewayStateDeleted {
		g.State = new(sdk.NatGatewayStateDeleting)
		s.scheduleTransition(transitionNATDeleted, str(in.NatGatewayId))
	}

	return &sdk.DeleteNatGatewayOutput{NatGatewayId: in.NatGatewayId}, nil
}

// applyNATGatewayTransition applies a transition of a NAT gateway. A deleted gateway stays visible for an
// hour, as in AWS.
func (s natGatewayHandlers) applyNATGatewayTransition(t transition) {
	g := s.st.NATs[t.ID]
	if g == nil {
		return
	}

	switch t.Kind {
	case transitionNATAvailable:
		if str(g.State) == sdk.NatGatewayStatePending {
			g.State = new(sdk.NatGatewayStateAvailable)
		}

	case transitionNATDeleted:
		g.State = new(sdk.NatGatewayStateDeleted)
		g.DeleteTime = new(s.cfg.Now().UTC())
		for _, a := range g.NatGatewayAddresses {
			if addr := s.st.Addresses[str(a.AllocationId)]; addr != nil {
				s.st.clearAddressAssociation(addr)
				s.freed.Track(str(a.AllocationId))
			}

			s.st.removeInterface(str(a.NetworkInterfaceId))
		}

		s.st.blackholeRoutes(t.ID)
		s.st.Pending = append(
			s.st.Pending,
			transition{At: s.cfg.Now().Add(time.Hour), Kind: transitionNATExpired, ID: t.ID},
		)

	case transitionNATExpired:
		s.st.removeTags(t.ID)
		delete(s.st.NATs, t.ID)
	}
}

func natGatewayFilterValues(g *sdk.NatGateway, name string) ([]string, bool) {
	switch name {
	case "nat-gateway-id":
		return []string{str(g.NatGatewayId)}, true
	case "state":
		return []string{str(g.State)}, true
	case "subnet-id":
		return []string{str(g.SubnetId)}, true
	case "vpc-id":
		return []string{str(g.VpcId)}, true
	}

	return nil, false
}

func (s natGatewayHandlers) describeNATGateways(
	in *sdk.DescribeNatGatewaysInput,
) (*sdk.DescribeNatGatewaysOutput, error) {
	for _, id := range strs(in.NatGatewayIds) {
		if s.st.NATs[id] == nil {
			return nil, newErrorf(codeNATGatewayNotFound, "The Nat Gateway %s was not found", id)
		}
	}

	got, next, err := listResources(
		s.Service,
		s.st.NATs,
		describeQuery{in.NatGatewayIds, in.Filter, in.MaxResults, in.NextToken},
		resourceLister[sdk.NatGateway]{codeNATGatewayNotFound, "Nat Gateway", natGatewayFilterValues},
	)

	for _, g := range got {
		g.Tags = s.st.tagList(str(g.NatGatewayId))
	}

	return &sdk.DescribeNatGatewaysOutput{NatGateways: got, NextToken: next}, err
}
