// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"errors"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// routeTargetProperties are the properties of a route that say where it leads.
func routeTargetProperties() []string {
	return []string{
		"GatewayId", "NatGatewayId", "InstanceId", "NetworkInterfaceId", "VpcPeeringConnectionId", "TransitGatewayId",
		"EgressOnlyInternetGatewayId", "VpcEndpointId", "CarrierGatewayId", "LocalGatewayId", "CoreNetworkArn",
	}
}

func routeDestinationProperties() []string {
	return []string{"DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId"}
}

func routeTypes() map[string]resourceType {
	route := func(j *handlerRequest) template.Object {
		in := j.pickProperties(append(routeTargetProperties(), routeDestinationProperties()...)...)
		in["RouteTableId"] = j.props["RouteTableId"]
		return in
	}

	return map[string]resourceType{
		"AWS::EC2::RouteTable": {
			create: createEC2(
				"CreateRouteTable",
				"route-table",
				"RouteTable.RouteTableId",
				func(j *handlerRequest) template.Object { return j.pickProperties("VpcId") },
			),
			stabilize: setIDAttribute("RouteTableId"),
			update:    updateEC2Tags,
			delete:    deleteEC2("DeleteRouteTable", "RouteTableId"),
		},
		"AWS::EC2::Route": {
			create: func(j *handlerRequest) error {
				if err := j.runOperation("ec2", "CreateRoute", route(j)); err != nil &&
					(!j.resumed || errorCode(err) != "RouteAlreadyExists") {
					return err
				}

				return j.setPhysicalID(j.stringProperty("RouteTableId") + "|" + routeDestination(j))
			},
			stabilize: func(j *handlerRequest) error { j.attributes["CidrBlock"] = routeDestination(j); return nil },
			update:    func(j *handlerRequest) error { return j.runOperation("ec2", "ReplaceRoute", route(j)) },
			delete: func(j *handlerRequest) error {
				in := j.pickProperties(routeDestinationProperties()...)
				in["RouteTableId"] = j.props["RouteTableId"]
				return j.runOperation("ec2", "DeleteRoute", in)
			},
		},
		"AWS::EC2::SubnetRouteTableAssociation": {
			create: func(j *handlerRequest) error {
				out, err := j.callOperation(
					"ec2",
					"AssociateRouteTable",
					j.pickProperties("RouteTableId", "SubnetId"),
				)
				if err != nil {
					return err
				}

				return j.setPhysicalID(template.ValueAt(out, "AssociationId"))
			},
			stabilize:   setIDAttribute("Id"),
			delete:      deleteEC2("DisassociateRouteTable", "AssociationId"),
			findCreated: findAssociation,
		},
		"AWS::EC2::VPCEndpoint":          vpcEndpointType(),
		"AWS::EC2::VPCPeeringConnection": vpcPeeringType(),
	}
}

// vpcEndpointType is a way to a service that does not lead out of the network.
func vpcEndpointType() resourceType {
	return resourceType{
		create: createEC2(
			"CreateVpcEndpoint",
			"vpc-endpoint",
			"VpcEndpoint.VpcEndpointId",
			func(j *handlerRequest) template.Object {
				in := j.omitProperties("Tags", "PolicyDocument")
				if p := j.policyDocument("PolicyDocument"); p != "" {
					in["PolicyDocument"] = p
				}

				return in
			},
		),
		stabilize: func(j *handlerRequest) error {
			j.attributes["Id"] = j.physicalID
			return j.waitUntil(func() (bool, error) {
				e, err := j.describeFirst("DescribeVpcEndpoints", "VpcEndpointIds", "VpcEndpoints")
				if template.StringAt(e, "State") == "failed" {
					return false, errors.New("the endpoint failed") // the service gives no reason
				}

				return template.StringAt(e, "State") == "available", err
			})
		},
		update: updateVPCEndpoint,
		delete: func(j *handlerRequest) error {
			return j.runOperation("ec2", "DeleteVpcEndpoints", template.Object{"VpcEndpointIds": []any{j.physicalID}})
		},
		isDeleted: func(j *handlerRequest) (bool, error) {
			e, err := j.describeFirst("DescribeVpcEndpoints", "VpcEndpointIds", "VpcEndpoints")
			return e == nil, err
		},
	}
}

// vpcPeeringType joins two networks.
func vpcPeeringType() resourceType {
	return resourceType{
		create: createEC2(
			"CreateVpcPeeringConnection",
			"vpc-peering-connection",
			"VpcPeeringConnection.VpcPeeringConnectionId",
			func(j *handlerRequest) template.Object {
				return j.pickProperties("VpcId", "PeerVpcId", "PeerOwnerId", "PeerRegion")
			},
		),
		stabilize: func(j *handlerRequest) error {
			j.attributes["Id"] = j.physicalID
			if owner := j.stringProperty("PeerOwnerId"); owner == "" || owner == j.engine.cfg.Account {
				return j.runOperation(
					"ec2",
					"AcceptVpcPeeringConnection",
					template.Object{"VpcPeeringConnectionId": j.physicalID},
				)
			}

			return nil
		},
		update: updateEC2Tags,
		delete: deleteEC2("DeleteVpcPeeringConnection", "VpcPeeringConnectionId"),
		isDeleted: func(j *handlerRequest) (bool, error) {
			p, err := j.describeFirst(
				"DescribeVpcPeeringConnections",
				"VpcPeeringConnectionIds",
				"VpcPeeringConnections",
			)

			state := template.StringAt(p, "Status", "Code")
			return state == "" || state == "deleted", err
		},
	}
}

func routeDestination(j *handlerRequest) string {
	for _, d := range routeDestinationProperties() {
		if t := j.stringProperty(d); t != "" {
			return t
		}
	}

	return ""
}

// findAssociation finds the association of the job's subnet.
func findAssociation(j *handlerRequest) (bool, error) {
	out, err := j.callOperation(
		"ec2",
		"DescribeRouteTables",
		template.Object{"RouteTableIds": []any{j.props["RouteTableId"]}},
	)

	for _, a := range template.ListAt(out, "RouteTables", 0, "Associations") {
		if template.StringAt(a, "SubnetId") == j.stringProperty("SubnetId") {
			j.physicalID = template.StringAt(a, "RouteTableAssociationId")
			return true, nil
		}
	}

	return false, err
}

// updateVPCEndpoint gives an endpoint other tables, subnets, groups or another policy.
func updateVPCEndpoint(j *handlerRequest) error {
	in := template.Object{"VpcEndpointId": j.physicalID}
	for _, name := range []string{"RouteTableIds", "SubnetIds", "SecurityGroupIds"} {
		more, fewer := diffLists(j.oldProps[name], j.props[name])
		if len(more) > 0 {
			in["Add"+name] = more
		}

		if len(fewer) > 0 {
			in["Remove"+name] = fewer
		}
	}

	if j.propertyChanged("PrivateDnsEnabled") {
		in["PrivateDnsEnabled"] = j.props["PrivateDnsEnabled"]
	}

	if j.propertyChanged("PolicyDocument") {
		if p := j.policyDocument("PolicyDocument"); p != "" {
			in["PolicyDocument"] = p
		} else {
			in["ResetPolicy"] = true
		}
	}

	if len(in) > 1 {
		if err := j.runOperation("ec2", "ModifyVpcEndpoint", in); err != nil {
			return err
		}
	}

	return updateEC2Tags(j)
}

// diffLists are the items that one list has and the other has not.
func diffLists(before, after any) (more, fewer []any) {
	have := map[string]bool{}
	want := map[string]bool{}
	for _, v := range template.ListAt(before) {
		have[template.CanonicalText(v)] = true
	}

	for _, v := range template.ListAt(after) {
		if want[template.CanonicalText(v)] = true; !have[template.CanonicalText(v)] {
			more = append(more, v)
		}
	}

	for _, v := range template.ListAt(before) {
		if !want[template.CanonicalText(v)] {
			fewer = append(fewer, v)
		}
	}

	return more, fewer
}
