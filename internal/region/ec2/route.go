// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"net/netip"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// newRoute checks a request for a route and returns the route.
func (s routeTableHandlers) newRoute(t *sdk.RouteTable, in *sdk.CreateRouteInput) (*sdk.Route, error) {
	p, err := netip.ParsePrefix(str(in.DestinationCidrBlock))
	if err != nil || !p.Addr().Is4() {
		return nil, invalidParameter(
			"destinationCidrBlock",
			str(in.DestinationCidrBlock),
			"This is not a valid CIDR block.",
		)
	}

	given := 0

	for _, target := range []*string{
		in.GatewayId,
		in.NatGatewayId,
		in.NetworkInterfaceId,
		in.InstanceId,
		in.VpcPeeringConnectionId,
	} {
		if str(target) != "" {
			given++
		}
	}

	if given != 1 {
		return nil, newErrorf(
			codeInvalidParameterCombination,
			"The parameters must name exactly one target of the route",
		)
	}

	r := newRoute(p)

	switch {
	case in.GatewayId != nil:
		err = s.routeToInternetGateway(t, r, *in.GatewayId)
	case in.VpcPeeringConnectionId != nil:
		err = s.routeToPeering(t, r, *in.VpcPeeringConnectionId)
	case in.NatGatewayId != nil:
		err = s.routeToNATGateway(t, r, *in.NatGatewayId)
	default:
		err = s.routeToInterface(t, r, in)
	}

	return r, err
}

// newRoute returns an active route that has no target yet.
func newRoute(destination netip.Prefix) *sdk.Route {
	return &sdk.Route{
		DestinationCidrBlock: new(destination.Masked().String()),
		Origin:               new(sdk.RouteOriginCreateRoute),
		State:                new(sdk.RouteStateActive),
	}
}

func (s routeTableHandlers) routeToInternetGateway(t *sdk.RouteTable, r *sdk.Route, id string) error {
	if !strings.HasPrefix(id, "igw-") {
		return newErrorf(codeInvalidGatewayIDNotFound, "The gateway ID '%s' does not exist", id)
	}

	g, err := s.st.findInternetGateway(&id)
	if err != nil {
		return err
	}

	if len(g.Attachments) == 0 || str(g.Attachments[0].VpcId) != str(t.VpcId) {
		return newErrorf(
			codeInvalidParameterValue,
			"route table %s and network gateway %s belong to different networks",
			str(t.RouteTableId),
			id,
		)
	}

	r.GatewayId = new(id)

	return nil
}

func (s routeTableHandlers) routeToNATGateway(t *sdk.RouteTable, r *sdk.Route, id string) error {
	g := s.st.NATs[id]
	if g == nil || str(g.State) == sdk.NatGatewayStateDeleted || str(g.State) == sdk.NatGatewayStateDeleting {
		return newErrorf(
			codeInvalidNATGatewayIDNotFound,
			"The natGateway ID '%s' does not exist",
			id,
		)
	}

	if str(g.VpcId) != str(t.VpcId) {
		return newErrorf(
			codeInvalidParameterValue,
			"route table %s and NAT gateway %s belong to different networks",
			str(t.RouteTableId),
			id,
		)
	}

	r.NatGatewayId = new(id)

	return nil
}

func (s routeTableHandlers) routeToInterface(
	t *sdk.RouteTable,
	r *sdk.Route,
	in *sdk.CreateRouteInput,
) error {
	interfaceID := str(in.NetworkInterfaceId)
	if in.InstanceId != nil {
		i, err := s.st.findInstance(in.InstanceId)
		if err != nil {
			return err
		}

		if err := checkSingleInterface(s.st, str(i.InstanceId)); err != nil {
			return err
		}

		interfaceID = s.st.primaryInterfaceID(str(i.InstanceId))
		r.InstanceId = i.InstanceId
		r.InstanceOwnerId = new(s.cfg.Account)
	}

	n := s.st.Interfaces[interfaceID]
	if n == nil {
		return notFound(interfaceID)
	}

	if str(n.VpcId) != str(t.VpcId) {
		return newErrorf(
			codeInvalidParameterValue,
			"route table %s and interface %s belong to different networks",
			str(t.RouteTableId),
			interfaceID,
		)
	}

	r.NetworkInterfaceId = n.NetworkInterfaceId

	return nil
}

func routeIndex(t *sdk.RouteTable, cidr *string) int {
	want := str(cidr)
	if p, err := netip.ParsePrefix(want); err == nil {
		want = p.Masked().String()
	}

	return slices.IndexFunc(t.Routes, func(r *sdk.Route) bool { return str(r.DestinationCidrBlock) == want })
}

func (s routeTableHandlers) createRoute(in *sdk.CreateRouteInput) (*sdk.CreateRouteOutput, error) {
	t, err := s.st.findRouteTable(in.RouteTableId)
	if err != nil {
		return nil, err
	}

	r, err := s.newRoute(t, in)
	if err != nil {
		return nil, err
	}

	if at := routeIndex(t, r.DestinationCidrBlock); at >= 0 {
		// Creating the same route again succeeds, as in AWS.
		same := *t.Routes[at]
		if str(same.GatewayId) == str(r.GatewayId) && str(same.NatGatewayId) == str(r.NatGatewayId) &&
			str(same.VpcPeeringConnectionId) == str(r.VpcPeeringConnectionId) &&
			str(same.NetworkInterfaceId) == str(r.NetworkInterfaceId) &&
			str(same.State) == sdk.RouteStateActive {
			return &sdk.CreateRouteOutput{Return: new(true)}, nil
		}

		return nil, newErrorf(
			codeRouteAlreadyExists,
			"The route identified by %s already exists.",
			str(r.DestinationCidrBlock),
		)
	}

	if len(t.Routes) >= s.cfg.Quotas.RoutesPerTable {
		return nil, newError(codeRouteLimitExceeded)
	}

	t.Routes = append(t.Routes, r)

	return &sdk.CreateRouteOutput{Return: new(true)}, nil
}

func (st *serviceState) findRemovableRoute(table, cidr *string) (*sdk.RouteTable, int, error) {
	t, err := st.findRouteTable(table)
	if err != nil {
		return nil, 0, err
	}

	at := routeIndex(t, cidr)
	if at < 0 {
		return nil, 0, newErrorf(
			codeInvalidRouteNotFound,
			"no route with destination-cidr-block %s in route table %s",
			str(cidr),
			str(table),
		)
	}

	if str(t.Routes[at].GatewayId) == "local" {
		return nil, 0, newErrorf(
			codeInvalidParameterValue,
			"cannot remove local route %s in route table %s",
			str(cidr),
			str(table),
		)
	}

	return t, at, nil
}

func (s routeTableHandlers) replaceRoute(in *sdk.ReplaceRouteInput) (*sdk.ReplaceRouteOutput, error) {
	t, at, err := s.st.findRemovableRoute(in.RouteTableId, in.DestinationCidrBlock)
	if err != nil {
		return nil, err
	}

	r, err := s.newRoute(t, &sdk.CreateRouteInput{
		RouteTableId:           in.RouteTableId,
		DestinationCidrBlock:   in.DestinationCidrBlock,
		GatewayId:              in.GatewayId,
		NatGatewayId:           in.NatGatewayId,
		NetworkInterfaceId:     in.NetworkInterfaceId,
		InstanceId:             in.InstanceId,
		VpcPeeringConnectionId: in.VpcPeeringConnectionId,
	})
	if err != nil {
		return nil, err
	}

	t.Routes[at] = r

	return &sdk.ReplaceRouteOutput{}, nil
}

func (s routeTableHandlers) deleteRoute(in *sdk.DeleteRouteInput) (*sdk.DeleteRouteOutput, error) {
	t, at, err := s.st.findRemovableRoute(in.RouteTableId, in.DestinationCidrBlock)
	if err != nil {
		return nil, err
	}

	t.Routes = slices.Delete(t.Routes, at, at+1)

	return &sdk.DeleteRouteOutput{}, nil
}

func (s routeTableHandlers) routeToPeering(t *sdk.RouteTable, r *sdk.Route, id string) error {
	p, err := s.st.findVPCPeering(&id)
	if err != nil {
		return err
	}

	sides := []string{str(p.RequesterVpcInfo.VpcId), str(p.AccepterVpcInfo.VpcId)}
	if str(p.Status.Code) != peeringActive || !slices.Contains(sides, str(t.VpcId)) {
		return newErrorf(
			codeInvalidParameterValue,
			"route table %s and VPC peering connection %s do not belong together, or it is not active",
			str(t.RouteTableId),
			id,
		)
	}

	r.VpcPeeringConnectionId = new(id)

	return nil
}
