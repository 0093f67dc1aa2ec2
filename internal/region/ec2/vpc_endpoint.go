// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// vpcEndpointHandlers serves VPC endpoints.
type vpcEndpointHandlers struct{ *Service }

func (s vpcEndpointHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateVpcEndpoint", s.createVPCEndpoint),
		writeOperation(s.Service, "ModifyVpcEndpoint", s.modifyVPCEndpoint),
		writeOperation(s.Service, "DeleteVpcEndpoints", s.deleteVPCEndpoints),
		readOperation(s.Service, "DescribeVpcEndpoints", s.describeVPCEndpoints),
	}
}

// endpointServices returns the services that can have a VPC endpoint, with the types of endpoint they
// support.
func endpointServices() map[string][]string {
	gateway := sdk.VpcEndpointTypeGateway
	private := sdk.VpcEndpointTypeInterface
	return map[string][]string{
		"s3":                   {gateway, private},
		"dynamodb":             {gateway, private},
		"autoscaling":          {private},
		"cloudformation":       {private},
		"ec2":                  {private},
		"ec2messages":          {private},
		"ecr.api":              {private},
		"ecr.dkr":              {private},
		"elasticloadbalancing": {private},
		"kms":                  {private},
		"logs":                 {private},
		"secretsmanager":       {private},
		"ssm":                  {private},
		"ssmmessages":          {private},
		"sts":                  {private},
	}
}

func (s vpcEndpointHandlers) createVPCEndpoint(
	in *sdk.CreateVpcEndpointInput,
) (*sdk.CreateVpcEndpointOutput, error) {
	request := tokenRequest{"CreateVpcEndpoint", in.ClientToken, in}
	answer := func(e *sdk.VpcEndpoint) *sdk.CreateVpcEndpointOutput {
		return &sdk.CreateVpcEndpointOutput{VpcEndpoint: e, ClientToken: in.ClientToken}
	}

	if out, err := repeatedAnswer(s.Service, request, s.st.Endpoints, answer); out != nil || err != nil {
		return out, err
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "vpc-endpoint")
	if err != nil {
		return nil, err
	}

	e, err := s.newVPCEndpoint(in)
	if err != nil {
		return nil, err
	}

	id := s.newID("vpce")
	e.VpcEndpointId = new(id)
	if str(e.VpcEndpointType) == sdk.VpcEndpointTypeGateway {
		e.State = new("available")
	} else if err := s.addEndpointInterfaces(e, strs(in.SubnetIds)); err != nil {
		return nil, err
	}

	s.st.Endpoints[id] = e
	s.st.setTags(id, tags)
	e.Tags = s.st.tagList(id)
	if str(e.State) != "available" {
		s.scheduleTransition(transitionEndpointAvailable, id)
	}

	return firstAnswer(s.Service, request, id, answer(e))
}

// newVPCEndpoint checks a request for an endpoint and returns the endpoint, without an id.
func (s vpcEndpointHandlers) newVPCEndpoint(in *sdk.CreateVpcEndpointInput) (*sdk.VpcEndpoint, error) {
	v, err := s.st.findVPC(in.VpcId)
	if err != nil {
		return nil, err
	}

	_, types := s.cfg.parseServiceName(str(in.ServiceName))
	if types == nil {
		return nil, newErrorf(
			codeInvalidServiceName,
			"The Vpc Endpoint Service '%s' does not exist",
			str(in.ServiceName),
		)
	}

	kind := str(in.VpcEndpointType)
	if kind == "" {
		kind = sdk.VpcEndpointTypeGateway
	}

	if !slices.Contains(types, kind) {
		return nil, newErrorf(
			codeInvalidParameter,
			"Endpoint type (%s) does not match available service types (%v).",
			kind,
			types,
		)
	}

	e := &sdk.VpcEndpoint{
		VpcId:             v.VpcId,
		ServiceName:       in.ServiceName,
		VpcEndpointType:   new(kind),
		State:             new("pending"),
		OwnerId:           new(s.cfg.Account),
		CreationTimestamp: new(s.cfg.Now().UTC()),
		RequesterManaged:  new(false),
		PolicyDocument:    in.PolicyDocument,
		PrivateDnsEnabled: new(false),
	}
	if kind == sdk.VpcEndpointTypeGateway {
		return e, s.configureGatewayEndpoint(in, e)
	}

	return e, s.configureInterfaceEndpoint(in, e)
}

func (s vpcEndpointHandlers) configureGatewayEndpoint(
	in *sdk.CreateVpcEndpointInput,
	e *sdk.VpcEndpoint,
) error {
	if len(in.SubnetIds)+len(in.SecurityGroupIds) > 0 ||
		in.PrivateDnsEnabled != nil && *in.PrivateDnsEnabled {
		return newErrorf(
			codeInvalidParameter,
			"Subnets, security groups and private DNS are not supported for endpoints of type Gateway",
		)
	}

	return s.addEndpointRouteTables(e, strs(in.RouteTableIds))
}

// addEndpointRouteTables associates a gateway endpoint with route tables.
func (s vpcEndpointHandlers) addEndpointRouteTables(e *sdk.VpcEndpoint, ids []string) error {
	for _, id := range ids {
		t, err := s.st.findRouteTable(&id)
		if err != nil {
			return err
		}

		if str(t.VpcId) != str(e.VpcId) {
			return newErrorf(
				codeInvalidParameter,
				"Route table %s does not belong to VPC %s",
				id,
				str(e.VpcId),
			)
		}

		for _, other := range s.st.Endpoints {
			if other != e && str(other.ServiceName) == str(e.ServiceName) &&
				slices.Contains(strs(other.RouteTableIds), id) {
				return newErrorf(
					codeRouteAlreadyExists,
					"route table %s already has a route with destination-prefix-list-id of %s",
					id,
					str(e.ServiceName),
				)
			}
		}

		if !slices.Contains(strs(e.RouteTableIds), id) {
			e.RouteTableIds = append(e.RouteTableIds, new(id))
		}
	}

	return nil
}

func (st *serviceState) findVPCEndpoint(id *string) (*sdk.VpcEndpoint, error) {
	if e := st.Endpoints[str(id)]; e != nil {
		return e, nil
	}

	return nil, newErrorf(
		codeInvalidVPCEndpointIDNotFound,
		"The Vpc Endpoint Id '%s' does not exist",
		str(id),
	)
}

func (s vpcEndpointHandlers) modifyVPCEndpoint(
	in *sdk.ModifyVpcEndpointInput,
) (*sdk.ModifyVpcEndpointOutput, error) {
	e, err := s.st.findVPCEndpoint(in.VpcEndpointId)
	if err != nil {
		return nil, err
	}

	gateway := str(e.VpcEndpointType) == sdk.VpcEndpointTypeGateway
	subnets := len(in.AddSubnetIds) + len(in.RemoveSubnetIds)
	groups := len(in.AddSecurityGroupIds) + len(in.RemoveSecurityGroupIds)
	tables := len(in.AddRouteTableIds) + len(in.RemoveRouteTableIds)
	if gateway && subnets+groups > 0 || !gateway && tables > 0 {
		return nil, newErrorf(
			codeInvalidParameter,
			"The parameters do not fit an endpoint of type %s",
			str(e.VpcEndpointType),
		)
	}

	if in.PolicyDocument != nil {
		e.PolicyDocument = in.PolicyDocument
	}

	if gateway {
		e.RouteTableIds = withoutStrings(e.RouteTableIds, in.RemoveRouteTableIds)

		err := s.addEndpointRouteTables(e, strs(in.AddRouteTableIds))

		return &sdk.ModifyVpcEndpointOutput{Return: new(true)}, err
	}

	return &sdk.ModifyVpcEndpointOutput{Return: new(true)}, s.modifyInterfaceEndpoint(in, e)
}

func withoutStrings(from, what []*string) []*string {
	return slices.DeleteFunc(
		slices.Clone(from),
		func(x *string) bool { return slices.Contains(strs(what), str(x)) },
	)
}

func (s vpcEndpointHandlers) deleteVPCEndpoints(
	in *sdk.DeleteVpcEndpointsInput,
) (*sdk.DeleteVpcEndpointsOutput, error) {
	out := &sdk.DeleteVpcEndpointsOutput{Unsuccessful: []*sdk.UnsuccessfulItem{}}
	for _, id := range strs(in.VpcEndpointIds) {
		e := s.st.Endpoints[id]
		switch {
		case e == nil:
			out.Unsuccessful = append(
				out.Unsuccessful,
				&sdk.UnsuccessfulItem{
					ResourceId: new(id),
					Error: &sdk.UnsuccessfulItemError{
						Code:    new(string(codeInvalidVPCEndpointNotFound)),
						Message: new("The Vpc Endpoint Id '" + id + "' does not exist"),
					},
				},
			)

		case str(e.State) != "deleting":
			e.State = new("deleting")
			e.RouteTableIds = nil
			s.scheduleTransition(transitionEndpointDeleted, id)
		}
	}

	return out, nil
}

// applyEndpointTransition applies a transition of an endpoint.
func (s vpcEndpointHandlers) applyEndpointTransition(t transition) {
	e := s.st.Endpoints[t.ID]
	switch {
	case e == nil:
	case t.Kind == transitionEndpointDeleted:
		for _, id := range strs(e.NetworkInterfaceIds) {
			s.st.removeInterface(id)
		}

		s.st.removeTags(t.ID)
		delete(s.st.Endpoints, t.ID)

	case str(e.State) == "pending":
		e.State = new("available")
	}
}

func (s vpcEndpointHandlers) describeVPCEndpoints(
	in *sdk.DescribeVpcEndpointsInput,
) (*sdk.DescribeVpcEndpointsOutput, error) {
	field := func(e *sdk.VpcEndpoint, name string) ([]string, bool) {
		v, known := map[string]*string{
			"vpc-id":             e.VpcId,
			"vpc-endpoint-id":    e.VpcEndpointId,
			"service-name":       e.ServiceName,
			"vpc-endpoint-state": e.State,
			"vpc-endpoint-type":  e.VpcEndpointType,
		}[name]

		return []string{str(v)}, known
	}

	got, next, err := listResources(
		s.Service,
		s.st.Endpoints,
		describeQuery{in.VpcEndpointIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.VpcEndpoint]{codeInvalidVPCEndpointIDNotFound, "Vpc Endpoint Id", field},
	)

	for _, e := range got {
		e.Tags = s.st.tagList(str(e.VpcEndpointId))
	}

	return &sdk.DescribeVpcEndpointsOutput{VpcEndpoints: got, NextToken: next}, err
}
