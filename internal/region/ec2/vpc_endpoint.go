// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) vpcEndpointOps() []wire.Op {
	return []wire.Op{
		writeOperation(s, "CreateVpcEndpoint", s.createVPCEndpoint),
		writeOperation(s, "ModifyVpcEndpoint", s.modifyVPCEndpoint),
		writeOperation(s, "DeleteVpcEndpoints", s.deleteVPCEndpoints),
		readOperation(s, "DescribeVpcEndpoints", s.describeVPCEndpoints),
	}
}

// endpointServices are the services that an endpoint can be made for, each with its types.
func endpointServices() map[string][]string {
	gateway := sdk.VpcEndpointTypeGateway
	private := sdk.VpcEndpointTypeInterface
	return map[string][]string{
		"s3": {gateway, private}, "dynamodb": {gateway, private},
		"autoscaling": {
			private,
		}, "cloudformation": {private}, "ec2": {private}, "ec2messages": {private}, "ecr.api": {private},
		"ecr.dkr": {
			private,
		}, "elasticloadbalancing": {private}, "kms": {private}, "logs": {private}, "secretsmanager": {private},
		"ssm": {private}, "ssmmessages": {private}, "sts": {private},
	}
}

// parseServiceName is the short name, such as ec2.
func (s *Service) parseServiceName(full string) (string, []string) {
	short, ok := strings.CutPrefix(full, "com.amazonaws."+s.cfg.Region+".")
	if !ok {
		return "", nil
	}

	return short, endpointServices()[short]
}

func (s *Service) createVPCEndpoint(in *sdk.CreateVpcEndpointInput) (*sdk.CreateVpcEndpointOutput, error) {
	if ids, err := s.idempotentResult("CreateVpcEndpoint", in.ClientToken, in); err != nil {
		return nil, err
	} else if len(ids) == 1 && s.st.Endpoints[ids[0]] != nil {
		return &sdk.CreateVpcEndpointOutput{VpcEndpoint: s.st.Endpoints[ids[0]], ClientToken: in.ClientToken}, nil
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
	s.setTags(id, tags)
	e.Tags = s.tagList(id)
	s.saveIdempotentResult("CreateVpcEndpoint", in.ClientToken, in, id)
	if str(e.State) != "available" {
		s.scheduleTransition(transitionEndpointAvailable, id)
	}

	return &sdk.CreateVpcEndpointOutput{VpcEndpoint: e, ClientToken: in.ClientToken}, nil
}

// newVPCEndpoint refuses what cannot become an endpoint, and makes its record.
func (s *Service) newVPCEndpoint(in *sdk.CreateVpcEndpointInput) (*sdk.VpcEndpoint, error) {
	v, err := s.findVPC(in.VpcId)
	if err != nil {
		return nil, err
	}

	_, types := s.parseServiceName(str(in.ServiceName))
	if types == nil {
		return nil, wire.Errorf(
			"InvalidServiceName",
			"The Vpc Endpoint Service '%s' does not exist",
			str(in.ServiceName),
		)
	}

	kind := str(in.VpcEndpointType)
	if kind == "" {
		kind = sdk.VpcEndpointTypeGateway
	}

	if !slices.Contains(types, kind) {
		return nil, wire.Errorf(
			"InvalidParameter",
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

func (s *Service) configureGatewayEndpoint(in *sdk.CreateVpcEndpointInput, e *sdk.VpcEndpoint) error {
	if len(in.SubnetIds)+len(in.SecurityGroupIds) > 0 ||
		in.PrivateDnsEnabled != nil && *in.PrivateDnsEnabled {
		return wire.Errorf(
			"InvalidParameter",
			"Subnets, security groups and private DNS are not supported for endpoints of type Gateway",
		)
	}

	return s.addEndpointRouteTables(e, strs(in.RouteTableIds))
}

// addEndpointRouteTables leads the service's addresses in route tables to a gateway endpoint.
func (s *Service) addEndpointRouteTables(e *sdk.VpcEndpoint, ids []string) error {
	for _, id := range ids {
		t, err := s.findRouteTable(&id)
		if err != nil {
			return err
		}

		if str(t.VpcId) != str(e.VpcId) {
			return wire.Errorf(
				"InvalidParameter",
				"Route table %s does not belong to VPC %s",
				id,
				str(e.VpcId),
			)
		}

		for _, other := range s.st.Endpoints {
			if other != e && str(other.ServiceName) == str(e.ServiceName) &&
				slices.Contains(strs(other.RouteTableIds), id) {
				return wire.Errorf(
					"RouteAlreadyExists",
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

func (s *Service) configureInterfaceEndpoint(in *sdk.CreateVpcEndpointInput, e *sdk.VpcEndpoint) error {
	if len(in.RouteTableIds) > 0 {
		return wire.Errorf(
			"InvalidParameter",
			"Route tables are not supported for endpoints of type Interface",
		)
	}

	groups := strs(in.SecurityGroupIds)
	if len(groups) == 0 {
		groups = []string{s.defaultSecurityGroupID(str(e.VpcId))}
	}

	if err := s.setEndpointSecurityGroups(e, groups); err != nil {
		return err
	}

	if in.PrivateDnsEnabled == nil || *in.PrivateDnsEnabled {
		return s.enablePrivateDNS(e)
	}

	return nil
}

func (s *Service) setEndpointSecurityGroups(e *sdk.VpcEndpoint, ids []string) error {
	found, err := s.resolveSecurityGroups(str(e.VpcId), ids, s.cfg.Quotas.GroupsPerENI)
	if err != nil {
		return err
	}

	e.Groups = nil
	for _, g := range found {
		e.Groups = append(e.Groups, &sdk.SecurityGroupIdentifier{GroupId: g.GroupId, GroupName: g.GroupName})
	}

	for _, id := range strs(e.NetworkInterfaceIds) {
		s.st.Interfaces[id].Groups = found
	}

	return nil
}

// enablePrivateDNS makes the service's own name lead to the endpoint.
func (s *Service) enablePrivateDNS(e *sdk.VpcEndpoint) error {
	if a := s.st.Attributes[str(e.VpcId)]; a == nil || !a.DNSSupport || !a.DNSHostnames {
		return wire.Errorf(
			"InvalidParameter",
			"Enabling private DNS requires both enableDnsSupport and enableDnsHostnames VPC attributes set to true for %s",
			str(e.VpcId),
		)
	}

	for _, other := range s.st.Endpoints {
		if other != e && str(other.VpcId) == str(e.VpcId) && str(other.ServiceName) == str(e.ServiceName) &&
			other.PrivateDnsEnabled != nil &&
			*other.PrivateDnsEnabled {
			return wire.Errorf(
				"InvalidParameter",
				"private-dns-enabled cannot be set because there is already a conflicting DNS domain for %s in the VPC %s",
				str(e.ServiceName),
				str(e.VpcId),
			)
		}
	}

	e.PrivateDnsEnabled = new(true)

	return nil
}

// addEndpointInterfaces gives an endpoint an interface in each subnet: all or none.
func (s *Service) addEndpointInterfaces(e *sdk.VpcEndpoint, subnets []string) error {
	zones := map[string]string{}
	for _, id := range append(strs(e.SubnetIds), subnets...) {
		n, err := s.findSubnet(&id)
		if err != nil {
			return err
		}

		if str(n.VpcId) != str(e.VpcId) {
			return wire.Errorf("InvalidParameter", "Subnet %s does not belong to VPC %s", id, str(e.VpcId))
		}

		if other := zones[str(n.AvailabilityZone)]; other != "" {
			return wire.Errorf(
				"DuplicateSubnetsInSameZone",
				"Found another VPC endpoint subnet in the availability zone of %s",
				id,
			)
		}

		zones[str(n.AvailabilityZone)] = id
	}

	groups := []string{}
	for _, g := range e.Groups {
		groups = append(groups, str(g.GroupId))
	}

	var made []string

	for _, id := range subnets {
		n, err := s.newNetworkInterface(interfaceSpec{
			subnet:      s.st.Subnets[id],
			kind:        "vpc_endpoint",
			description: "VPC Endpoint Interface " + str(e.VpcEndpointId),
			requester:   "amazon-vpce",
			managed:     true,
			groups:      groups,
		})
		if err != nil {
			for _, m := range made {
				s.removeInterface(m)
			}

			return err
		}

		made = append(made, str(n.NetworkInterfaceId))
	}

	for i, id := range subnets {
		e.SubnetIds = append(e.SubnetIds, new(id))
		e.NetworkInterfaceIds = append(e.NetworkInterfaceIds, new(made[i]))
	}

	return nil
}

func (s *Service) findVPCEndpoint(id *string) (*sdk.VpcEndpoint, error) {
	if e := s.st.Endpoints[str(id)]; e != nil {
		return e, nil
	}

	return nil, wire.Errorf(
		"InvalidVpcEndpointId.NotFound",
		"The Vpc Endpoint Id '%s' does not exist",
		str(id),
	)
}

func (s *Service) modifyVPCEndpoint(in *sdk.ModifyVpcEndpointInput) (*sdk.ModifyVpcEndpointOutput, error) {
	e, err := s.findVPCEndpoint(in.VpcEndpointId)
	if err != nil {
		return nil, err
	}

	gateway := str(e.VpcEndpointType) == sdk.VpcEndpointTypeGateway
	if gateway &&
		len(
			in.AddSubnetIds,
		)+len(
			in.RemoveSubnetIds,
		)+len(
			in.AddSecurityGroupIds,
		)+len(
			in.RemoveSecurityGroupIds,
		) > 0 ||
		!gateway && len(in.AddRouteTableIds)+len(in.RemoveRouteTableIds) > 0 {
		return nil, wire.Errorf(
			"InvalidParameter",
			"The parameters do not fit an endpoint of type %s",
			str(e.VpcEndpointType),
		)
	}

	if in.PolicyDocument != nil {
		e.PolicyDocument = in.PolicyDocument
	}

	if gateway {
		e.RouteTableIds = withoutStrings(e.RouteTableIds, in.RemoveRouteTableIds)
		return &sdk.ModifyVpcEndpointOutput{
				Return: new(true),
			}, s.addEndpointRouteTables(
				e,
				strs(in.AddRouteTableIds),
			)
	}

	return &sdk.ModifyVpcEndpointOutput{Return: new(true)}, s.modifyInterfaceEndpoint(in, e)
}

func withoutStrings(from, what []*string) []*string {
	return slices.DeleteFunc(
		slices.Clone(from),
		func(x *string) bool { return slices.Contains(strs(what), str(x)) },
	)
}

func (s *Service) modifyInterfaceEndpoint(in *sdk.ModifyVpcEndpointInput, e *sdk.VpcEndpoint) error {
	var groups []string
	for _, g := range e.Groups {
		if !slices.Contains(strs(in.RemoveSecurityGroupIds), str(g.GroupId)) {
			groups = append(groups, str(g.GroupId))
		}
	}

	for _, id := range strs(in.AddSecurityGroupIds) {
		if !slices.Contains(groups, id) {
			groups = append(groups, id)
		}
	}

	if len(groups) == 0 {
		return wire.Errorf("InvalidParameter", "An interface endpoint needs a security group")
	}

	if err := s.setEndpointSecurityGroups(e, groups); err != nil {
		return err
	}

	if err := s.changeEndpointSubnets(e, in); err != nil || in.PrivateDnsEnabled == nil {
		return err
	}

	if *in.PrivateDnsEnabled {
		return s.enablePrivateDNS(e)
	}

	e.PrivateDnsEnabled = new(false)

	return nil
}

// changeEndpointSubnets takes an endpoint out of subnets and puts it into others.
func (s *Service) changeEndpointSubnets(e *sdk.VpcEndpoint, in *sdk.ModifyVpcEndpointInput) error {
	for _, id := range strs(in.RemoveSubnetIds) {
		at := slices.Index(strs(e.SubnetIds), id)
		if at < 0 {
			return wire.Errorf("InvalidParameter", "Subnet %s is not one of the endpoint's", id)
		}

		s.removeInterface(str(e.NetworkInterfaceIds[at]))
		e.SubnetIds = slices.Delete(e.SubnetIds, at, at+1)
		e.NetworkInterfaceIds = slices.Delete(e.NetworkInterfaceIds, at, at+1)
	}

	return s.addEndpointInterfaces(e, strs(in.AddSubnetIds))
}

func (s *Service) deleteVPCEndpoints(in *sdk.DeleteVpcEndpointsInput) (*sdk.DeleteVpcEndpointsOutput, error) {
	out := &sdk.DeleteVpcEndpointsOutput{Unsuccessful: []*sdk.UnsuccessfulItem{}}
	for _, id := range strs(in.VpcEndpointIds) {
		e := s.st.Endpoints[id]
		switch {
		case e == nil:
			out.Unsuccessful = append(
				out.Unsuccessful,
				&sdk.UnsuccessfulItem{ResourceId: new(id), Error: &sdk.UnsuccessfulItemError{
					Code: new(
						"InvalidVpcEndpoint.NotFound",
					), Message: new("The Vpc Endpoint Id '" + id + "' does not exist"),
				}},
			)

		case str(e.State) != "deleting":
			e.State = new("deleting")
			e.RouteTableIds = nil
			s.scheduleTransition(transitionEndpointDeleted, id)
		}
	}

	return out, nil
}

// applyEndpointTransition moves an endpoint on.
func (s *Service) applyEndpointTransition(t transition) {
	e := s.st.Endpoints[t.ID]
	switch {
	case e == nil:
	case t.Kind == transitionEndpointDeleted:
		for _, id := range strs(e.NetworkInterfaceIds) {
			s.removeInterface(id)
		}

		s.removeTags(t.ID)
		delete(s.st.Endpoints, t.ID)

	case str(e.State) == "pending":
		e.State = new("available")
	}
}

func (s *Service) describeVPCEndpoints(
	in *sdk.DescribeVpcEndpointsInput,
) (*sdk.DescribeVpcEndpointsOutput, error) {
	field := func(e *sdk.VpcEndpoint, name string) ([]string, bool) {
		v, known := map[string]*string{
			"vpc-id": e.VpcId, "vpc-endpoint-id": e.VpcEndpointId, "service-name": e.ServiceName, "vpc-endpoint-state": e.State,
			"vpc-endpoint-type": e.VpcEndpointType,
		}[name]

		return []string{str(v)}, known
	}

	got, next, err := listResources(
		s,
		s.st.Endpoints,
		describeQuery{in.VpcEndpointIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.VpcEndpoint]{"InvalidVpcEndpointId.NotFound", "Vpc Endpoint Id", field},
	)

	for _, e := range got {
		e.Tags = s.tagList(str(e.VpcEndpointId))
	}

	return &sdk.DescribeVpcEndpointsOutput{VpcEndpoints: got, NextToken: next}, err
}
