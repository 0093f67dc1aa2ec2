// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"net/netip"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// routeTableHandlers serves route tables, their associations and routes.
type routeTableHandlers struct{ *Service }

func (s routeTableHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateRouteTable", s.createRouteTable),
		writeOperation(s.Service, "DeleteRouteTable", s.deleteRouteTable),
		readOperation(s.Service, "DescribeRouteTables", s.describeRouteTables),
		writeOperation(s.Service, "AssociateRouteTable", s.associateRouteTable),
		writeOperation(s.Service, "DisassociateRouteTable", s.disassociateRouteTable),
		writeOperation(s.Service, "ReplaceRouteTableAssociation", s.replaceRouteTableAssociation),
		writeOperation(s.Service, "CreateRoute", s.createRoute),
		writeOperation(s.Service, "ReplaceRoute", s.replaceRoute),
		writeOperation(s.Service, "DeleteRoute", s.deleteRoute),
	}
}

func newLocalRoute(cidr netip.Prefix) *sdk.Route {
	return &sdk.Route{
		DestinationCidrBlock: new(cidr.String()),
		GatewayId:            new("local"),
		Origin:               new(sdk.RouteOriginCreateRouteTable),
		State:                new(sdk.RouteStateActive),
	}
}

func (s routeTableHandlers) newRouteTable(vpc string, cidrs []netip.Prefix) *sdk.RouteTable {
	id := s.newID("rtb")
	t := &sdk.RouteTable{
		RouteTableId:    new(id),
		VpcId:           new(vpc),
		OwnerId:         new(s.cfg.Account),
		Associations:    []*sdk.RouteTableAssociation{},
		PropagatingVgws: []*sdk.PropagatingVgw{},
	}

	for _, c := range cidrs {
		t.Routes = append(t.Routes, newLocalRoute(c))
	}

	s.st.Tables[id] = t

	return t
}

// newRouteTableAssociation returns an association of a table with a subnet or, if subnet is nil, as the main
// table of its VPC.
func (s routeTableHandlers) newRouteTableAssociation(
	t *sdk.RouteTable,
	subnet *string,
) *sdk.RouteTableAssociation {
	return &sdk.RouteTableAssociation{
		RouteTableAssociationId: new(s.newID("rtbassoc")),
		RouteTableId:            t.RouteTableId,
		SubnetId:                subnet,
		Main:                    new(subnet == nil),
		AssociationState: &sdk.RouteTableAssociationState{
			State: new(sdk.RouteTableAssociationStateCodeAssociated),
		},
	}
}

func isMainRouteTable(t *sdk.RouteTable) bool {
	return slices.ContainsFunc(
		t.Associations,
		func(a *sdk.RouteTableAssociation) bool { return a.Main != nil && *a.Main },
	)
}

func (s routeTableHandlers) createRouteTable(
	in *sdk.CreateRouteTableInput,
) (*sdk.CreateRouteTableOutput, error) {
	request := tokenRequest{"CreateRouteTable", in.ClientToken, in}
	answer := func(t *sdk.RouteTable) *sdk.CreateRouteTableOutput {
		return &sdk.CreateRouteTableOutput{RouteTable: t}
	}

	if out, err := repeatedAnswer(s.Service, request, s.st.Tables, answer); out != nil || err != nil {
		return out, err
	}

	v, err := s.st.findVPC(in.VpcId)
	if err != nil {
		return nil, err
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "route-table")
	if err != nil {
		return nil, err
	}

	count := 0

	for _, t := range s.st.Tables {
		if str(t.VpcId) == str(v.VpcId) {
			count++
		}
	}

	if count >= s.cfg.Quotas.TablesPerVPC {
		return nil, newError(codeRouteTableLimitExceeded)
	}

	t := s.newRouteTable(str(v.VpcId), vpcCIDRs(v))
	s.st.setTags(str(t.RouteTableId), tags)
	t.Tags = s.st.tagList(str(t.RouteTableId))

	return firstAnswer(s.Service, request, str(t.RouteTableId), answer(t))
}

func (st *serviceState) findRouteTable(id *string) (*sdk.RouteTable, error) {
	if str(id) == "" {
		return nil, missingParameter("routeTableId")
	}

	t := st.Tables[str(id)]
	if t == nil {
		return nil, newErrorf(
			codeInvalidRouteTableIDNotFound,
			"The routeTable ID '%s' does not exist",
			str(id),
		)
	}

	return t, nil
}

func (s routeTableHandlers) deleteRouteTable(
	in *sdk.DeleteRouteTableInput,
) (*sdk.DeleteRouteTableOutput, error) {
	t, err := s.st.findRouteTable(in.RouteTableId)
	if err != nil {
		return nil, err
	}

	if len(t.Associations) > 0 {
		return nil, dependencyViolation(
			"The routeTable '%s' has dependencies and cannot be deleted.",
			str(t.RouteTableId),
		)
	}

	s.st.removeTags(str(t.RouteTableId))
	delete(s.st.Tables, str(t.RouteTableId))

	return &sdk.DeleteRouteTableOutput{}, nil
}

func routeTableFilterValues(t *sdk.RouteTable, name string) ([]string, bool) {
	values := map[string][]string{
		"route-table-id":                         {str(t.RouteTableId)},
		"vpc-id":                                 {str(t.VpcId)},
		"owner-id":                               {str(t.OwnerId)},
		"association.main":                       {},
		"association.subnet-id":                  {},
		"association.route-table-association-id": {},
		"association.route-table-id":             {},
		"route.destination-cidr-block":           {},
		"route.gateway-id":                       {},
		"route.nat-gateway-id":                   {},
		"route.instance-id":                      {},
		"route.state":                            {},
		"route.vpc-peering-connection-id":        {},
	}

	add := func(key, value string) { values[key] = append(values[key], value) }
	for _, a := range t.Associations {
		add("association.main", boolText(a.Main))
		add("association.subnet-id", str(a.SubnetId))
		add("association.route-table-association-id", str(a.RouteTableAssociationId))
		add("association.route-table-id", str(a.RouteTableId))
	}

	for _, r := range t.Routes {
		add("route.destination-cidr-block", str(r.DestinationCidrBlock))
		add("route.gateway-id", str(r.GatewayId))
		add("route.nat-gateway-id", str(r.NatGatewayId))
		add("route.vpc-peering-connection-id", str(r.VpcPeeringConnectionId))
		add("route.instance-id", str(r.InstanceId))
		add("route.state", str(r.State))
	}

	v, known := values[name]

	return v, known
}

func (s routeTableHandlers) describeRouteTables(
	in *sdk.DescribeRouteTablesInput,
) (*sdk.DescribeRouteTablesOutput, error) {
	got, next, err := listResources(
		s.Service,
		s.st.Tables,
		describeQuery{in.RouteTableIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.RouteTable]{
			codeInvalidRouteTableIDNotFound,
			"routeTable ID",
			routeTableFilterValues,
		},
	)

	for _, t := range got {
		t.Tags = s.st.tagList(str(t.RouteTableId))
	}

	return &sdk.DescribeRouteTablesOutput{RouteTables: got, NextToken: next}, err
}

func (s routeTableHandlers) associateRouteTable(
	in *sdk.AssociateRouteTableInput,
) (*sdk.AssociateRouteTableOutput, error) {
	t, err := s.st.findRouteTable(in.RouteTableId)
	if err != nil {
		return nil, err
	}

	n, err := s.st.findSubnet(in.SubnetId)
	if err != nil {
		return nil, err
	}

	if str(n.VpcId) != str(t.VpcId) {
		return nil, newErrorf(
			codeInvalidParameterValue,
			"Route table %s and network %s belong to different networks",
			str(t.RouteTableId),
			str(n.SubnetId),
		)
	}

	for _, other := range s.st.Tables {
		for _, a := range other.Associations {
			if str(a.SubnetId) != str(n.SubnetId) {
				continue
			}

			if other == t {
				return &sdk.AssociateRouteTableOutput{
					AssociationId:    a.RouteTableAssociationId,
					AssociationState: a.AssociationState,
				}, nil
			}

			return nil, newErrorf(
				codeResourceAlreadyAssociated,
				"the specified association for route table %s conflicts with an existing association",
				str(t.RouteTableId),
			)
		}
	}

	a := s.newRouteTableAssociation(t, n.SubnetId)
	t.Associations = append(t.Associations, a)

	return &sdk.AssociateRouteTableOutput{
		AssociationId:    a.RouteTableAssociationId,
		AssociationState: a.AssociationState,
	}, nil
}

// findRouteTableAssociation returns an association and its route table.
func (st *serviceState) findRouteTableAssociation(
	id *string,
) (*sdk.RouteTable, *sdk.RouteTableAssociation, error) {
	for _, t := range st.Tables {
		for _, a := range t.Associations {
			if str(a.RouteTableAssociationId) == str(id) {
				return t, a, nil
			}
		}
	}

	return nil, nil, newErrorf(
		codeInvalidAssociationIDNotFound,
		"The association ID '%s' does not exist",
		str(id),
	)
}

func withoutAssociation(t *sdk.RouteTable, a *sdk.RouteTableAssociation) []*sdk.RouteTableAssociation {
	return slices.DeleteFunc(
		slices.Clone(t.Associations),
		func(x *sdk.RouteTableAssociation) bool { return x == a },
	)
}

func (s routeTableHandlers) disassociateRouteTable(
	in *sdk.DisassociateRouteTableInput,
) (*sdk.DisassociateRouteTableOutput, error) {
	t, a, err := s.st.findRouteTableAssociation(in.AssociationId)
	if err != nil {
		return nil, err
	}

	if *a.Main {
		return nil, newErrorf(
			codeInvalidParameterValue,
			"cannot disassociate the main route table association %s",
			str(in.AssociationId),
		)
	}

	t.Associations = withoutAssociation(t, a)

	return &sdk.DisassociateRouteTableOutput{}, nil
}

func (s routeTableHandlers) replaceRouteTableAssociation(
	in *sdk.ReplaceRouteTableAssociationInput,
) (*sdk.ReplaceRouteTableAssociationOutput, error) {
	from, a, err := s.st.findRouteTableAssociation(in.AssociationId)
	if err != nil {
		return nil, err
	}

	to, err := s.st.findRouteTable(in.RouteTableId)
	if err != nil {
		return nil, err
	}

	if str(from.VpcId) != str(to.VpcId) {
		return nil, newErrorf(
			codeInvalidParameterValue,
			"Route table %s and %s belong to different networks",
			str(from.RouteTableId),
			str(to.RouteTableId),
		)
	}

	from.Associations = withoutAssociation(from, a)
	b := s.newRouteTableAssociation(to, a.SubnetId)
	to.Associations = append(to.Associations, b)

	return &sdk.ReplaceRouteTableAssociationOutput{
		NewAssociationId: b.RouteTableAssociationId,
		AssociationState: b.AssociationState,
	}, nil
}

// blackholeRoutes sets the state of the routes to a deleted target to blackhole.
func (st *serviceState) blackholeRoutes(target string) {
	for _, t := range st.Tables {
		for _, r := range t.Routes {
			if target == str(r.NatGatewayId) || target == str(r.NetworkInterfaceId) ||
				target == str(r.GatewayId) ||
				target == str(r.VpcPeeringConnectionId) {
				r.State = new(sdk.RouteStateBlackhole)
			}
		}
	}
}
