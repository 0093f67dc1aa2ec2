// SPDX-License-Identifier: Apache-2.0

package cloudformation

import "errors"

// targetsOf are the properties of a route that say where it leads.
func targetsOf() []string {
	return []string{
		"GatewayId", "NatGatewayId", "InstanceId", "NetworkInterfaceId", "VpcPeeringConnectionId", "TransitGatewayId",
		"EgressOnlyInternetGatewayId", "VpcEndpointId", "CarrierGatewayId", "LocalGatewayId", "CoreNetworkArn",
	}
}

func destinations() []string {
	return []string{"DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId"}
}

func routeTypes() map[string]resourceType {
	route := func(j *job) tree {
		in := j.take(append(targetsOf(), destinations()...)...)
		in["RouteTableId"] = j.props["RouteTableId"]
		return in
	}
	return map[string]resourceType{
		"AWS::EC2::RouteTable": {
			make:   makeEC2("CreateRouteTable", "route-table", "RouteTable.RouteTableId", func(j *job) tree { return j.take("VpcId") }),
			settle: ownID("RouteTableId"), change: retagEC2,
			remove: removeEC2("DeleteRouteTable", "RouteTableId"),
		},
		"AWS::EC2::Route": {
			make: func(j *job) error {
				if err := j.do("ec2", "CreateRoute", route(j)); err != nil && (!j.again || code(err) != "RouteAlreadyExists") {
					return err
				}
				return j.made(j.text("RouteTableId") + "|" + routeKey(j))
			},
			settle: func(j *job) error { j.attributes["CidrBlock"] = routeKey(j); return nil },
			change: func(j *job) error { return j.do("ec2", "ReplaceRoute", route(j)) },
			remove: func(j *job) error {
				in := j.take(destinations()...)
				in["RouteTableId"] = j.props["RouteTableId"]
				return j.do("ec2", "DeleteRoute", in)
			},
		},
		"AWS::EC2::SubnetRouteTableAssociation": {
			make: func(j *job) error {
				out, err := j.call("ec2", "AssociateRouteTable", j.take("RouteTableId", "SubnetId"))
				if err != nil {
					return err
				}
				return j.made(at(out, "AssociationId"))
			},
			settle: ownID("Id"),
			remove: removeEC2("DisassociateRouteTable", "AssociationId"),
			adopt:  adoptAssociation,
		},
		"AWS::EC2::VPCEndpoint":          endpointType(),
		"AWS::EC2::VPCPeeringConnection": peeringType(),
	}
}

// endpointType is a way to a service that does not lead out of the network.
func endpointType() resourceType {
	return resourceType{
		make: makeEC2("CreateVpcEndpoint", "vpc-endpoint", "VpcEndpoint.VpcEndpointId", func(j *job) tree {
			in := j.takeAll("Tags", "PolicyDocument")
			if p := j.document("PolicyDocument"); p != "" {
				in["PolicyDocument"] = p
			}
			return in
		}),
		settle: func(j *job) error {
			j.attributes["Id"] = j.id
			return j.wait(func() (bool, error) {
				e, err := j.described("DescribeVpcEndpoints", "VpcEndpointIds", "VpcEndpoints")
				if textOf(e, "State") == "failed" {
					return false, errors.New("the endpoint failed") // the service gives no reason
				}
				return textOf(e, "State") == "available", err
			})
		},
		change: changeEndpoint,
		remove: func(j *job) error { return j.do("ec2", "DeleteVpcEndpoints", tree{"VpcEndpointIds": []any{j.id}}) },
		gone: func(j *job) (bool, error) {
			e, err := j.described("DescribeVpcEndpoints", "VpcEndpointIds", "VpcEndpoints")
			return e == nil, err
		},
	}
}

// peeringType joins two networks.
func peeringType() resourceType {
	return resourceType{
		make: makeEC2("CreateVpcPeeringConnection", "vpc-peering-connection", "VpcPeeringConnection.VpcPeeringConnectionId", func(j *job) tree {
			return j.take("VpcId", "PeerVpcId", "PeerOwnerId", "PeerRegion")
		}),
		settle: func(j *job) error {
			j.attributes["Id"] = j.id
			if owner := j.text("PeerOwnerId"); owner == "" || owner == j.s.cfg.Account {
				return j.do("ec2", "AcceptVpcPeeringConnection", tree{"VpcPeeringConnectionId": j.id})
			}
			return nil
		},
		change: retagEC2,
		remove: removeEC2("DeleteVpcPeeringConnection", "VpcPeeringConnectionId"),
		gone: func(j *job) (bool, error) {
			p, err := j.described("DescribeVpcPeeringConnections", "VpcPeeringConnectionIds", "VpcPeeringConnections")
			state := textOf(p, "Status", "Code")
			return state == "" || state == "deleted", err
		},
	}
}

func routeKey(j *job) string {
	for _, d := range destinations() {
		if t := j.text(d); t != "" {
			return t
		}
	}
	return ""
}

// adoptAssociation finds the association of the job's subnet.
func adoptAssociation(j *job) (bool, error) {
	out, err := j.call("ec2", "DescribeRouteTables", tree{"RouteTableIds": []any{j.props["RouteTableId"]}})
	for _, a := range list0(out, "RouteTables", 0, "Associations") {
		if textOf(a, "SubnetId") == j.text("SubnetId") {
			j.id = textOf(a, "RouteTableAssociationId")
			return true, nil
		}
	}
	return false, err
}

// changeEndpoint gives an endpoint other tables, subnets, groups or another policy.
func changeEndpoint(j *job) error {
	in := tree{"VpcEndpointId": j.id}
	for _, name := range []string{"RouteTableIds", "SubnetIds", "SecurityGroupIds"} {
		more, fewer := changes(j.old[name], j.props[name])
		if len(more) > 0 {
			in["Add"+name] = more
		}
		if len(fewer) > 0 {
			in["Remove"+name] = fewer
		}
	}
	if j.differs("PrivateDnsEnabled") {
		in["PrivateDnsEnabled"] = j.props["PrivateDnsEnabled"]
	}
	if j.differs("PolicyDocument") {
		if p := j.document("PolicyDocument"); p != "" {
			in["PolicyDocument"] = p
		} else {
			in["ResetPolicy"] = true
		}
	}
	if len(in) > 1 {
		if err := j.do("ec2", "ModifyVpcEndpoint", in); err != nil {
			return err
		}
	}
	return retagEC2(j)
}

// changes are the items that one list has and the other has not.
func changes(before, after any) (more, fewer []any) {
	have, want := map[string]bool{}, map[string]bool{}
	for _, v := range list0(before) {
		have[canonical(v)] = true
	}
	for _, v := range list0(after) {
		if want[canonical(v)] = true; !have[canonical(v)] {
			more = append(more, v)
		}
	}
	for _, v := range list0(before) {
		if !want[canonical(v)] {
			fewer = append(fewer, v)
		}
	}
	return more, fewer
}
