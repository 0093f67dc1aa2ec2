// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"errors"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// routeTargetProperties returns the properties that can be the target of a route.
func routeTargetProperties() []string {
	return []string{
		"GatewayId", "NatGatewayId", "InstanceId", "NetworkInterfaceId", "VpcPeeringConnectionId", "TransitGatewayId",
		"EgressOnlyInternetGatewayId", "VpcEndpointId", "CarrierGatewayId", "LocalGatewayId", "CoreNetworkArn",
	}
}

func routeDestinationProperties() []string {
	return []string{"DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId"}
}

func routeTypes() map[string]Type {
	route := func(req *Request) template.Object {
		in := req.pickProperties(append(routeTargetProperties(), routeDestinationProperties()...)...)
		in["RouteTableId"] = req.Properties["RouteTableId"]
		return in
	}

	return map[string]Type{
		"AWS::EC2::RouteTable": {
			Create: createEC2(
				"CreateRouteTable",
				"route-table",
				"RouteTable.RouteTableId",
				func(req *Request) template.Object { return req.pickProperties("VpcId") },
			),
			Stabilize: setIDAttribute("RouteTableId"),
			Update:    updateEC2Tags,
			Delete:    deleteEC2("DeleteRouteTable", "RouteTableId"),
		},
		"AWS::EC2::Route": {
			Create: func(ctx context.Context, req *Request) error {
				if err := req.runOperation(ctx, "ec2", "CreateRoute", route(req)); err != nil &&
					(!req.Resumed || ErrorCode(err) != "RouteAlreadyExists") {
					return err
				}

				return req.setPhysicalID(ctx, req.stringProperty("RouteTableId")+"|"+routeDestination(req))
			},
			Stabilize: func(_ context.Context, req *Request) error {
				req.Attributes["CidrBlock"] = routeDestination(req)
				return nil
			},
			Update: func(ctx context.Context, req *Request) error {
				return req.runOperation(ctx, "ec2", "ReplaceRoute", route(req))
			},
			Delete: func(ctx context.Context, req *Request) error {
				in := req.pickProperties(routeDestinationProperties()...)
				in["RouteTableId"] = req.Properties["RouteTableId"]
				return req.runOperation(ctx, "ec2", "DeleteRoute", in)
			},
		},
		"AWS::EC2::SubnetRouteTableAssociation": {
			Create: func(ctx context.Context, req *Request) error {
				out, err := req.callOperation(ctx,
					"ec2",
					"AssociateRouteTable",
					req.pickProperties("RouteTableId", "SubnetId"),
				)
				if err != nil {
					return err
				}

				return req.setPhysicalID(ctx, template.ValueAt(out, "AssociationId"))
			},
			Stabilize:   setIDAttribute("Id"),
			Delete:      deleteEC2("DisassociateRouteTable", "AssociationId"),
			FindCreated: findAssociation,
		},
		"AWS::EC2::VPCEndpoint":          vpcEndpointType(),
		"AWS::EC2::VPCPeeringConnection": vpcPeeringType(),
	}
}

// vpcEndpointType is AWS::EC2::VPCEndpoint.
func vpcEndpointType() Type {
	return Type{
		Create: createEC2(
			"CreateVpcEndpoint",
			"vpc-endpoint",
			"VpcEndpoint.VpcEndpointId",
			func(req *Request) template.Object {
				in := req.omitProperties("Tags", "PolicyDocument")
				if p := req.policyDocument("PolicyDocument"); p != "" {
					in["PolicyDocument"] = p
				}

				return in
			},
		),
		Stabilize: func(ctx context.Context, req *Request) error {
			req.Attributes["Id"] = req.PhysicalID
			return req.waitUntil(ctx, func() (bool, error) {
				e, err := req.describeFirst(ctx, "DescribeVpcEndpoints", "VpcEndpointIds", "VpcEndpoints")
				if template.StringAt(e, "State") == "failed" {
					return false, errors.New("the endpoint failed") // the service gives no reason
				}

				return template.StringAt(e, "State") == "available", err
			})
		},
		Update: updateVPCEndpoint,
		Delete: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx, "ec2", "DeleteVpcEndpoints", template.Object{
				"VpcEndpointIds": []any{req.PhysicalID},
			})
		},
		IsDeleted: func(ctx context.Context, req *Request) (bool, error) {
			e, err := req.describeFirst(ctx, "DescribeVpcEndpoints", "VpcEndpointIds", "VpcEndpoints")
			return e == nil, err
		},
	}
}

// vpcPeeringType is AWS::EC2::VPCPeeringConnection.
func vpcPeeringType() Type {
	return Type{
		Create: createEC2(
			"CreateVpcPeeringConnection",
			"vpc-peering-connection",
			"VpcPeeringConnection.VpcPeeringConnectionId",
			func(req *Request) template.Object {
				return req.pickProperties("VpcId", "PeerVpcId", "PeerOwnerId", "PeerRegion")
			},
		),
		Stabilize: stabilizePeering,
		Update:    updateEC2Tags,
		Delete: func(ctx context.Context, req *Request) error {
			if isEnded, err := isPeeringEnded(ctx, req); err != nil || isEnded {
				return err
			}

			return deleteEC2("DeleteVpcPeeringConnection", "VpcPeeringConnectionId")(ctx, req)
		},
		IsDeleted: isPeeringEnded,
	}
}

// isPeeringEnded reports whether the peering connection is deleted, or failed: EC2 deletes no failed one.
func isPeeringEnded(ctx context.Context, req *Request) (bool, error) {
	state, _, err := peeringState(ctx, req)
	return slices.Contains([]string{"", "deleted", "failed"}, state), err
}

// peeringState returns the state of the request's peering connection, and why it has it.
func peeringState(ctx context.Context, req *Request) (code, message string, err error) {
	p, err := req.describeFirst(ctx,
		"DescribeVpcPeeringConnections",
		"VpcPeeringConnectionIds",
		"VpcPeeringConnections",
	)

	return template.StringAt(p, "Status", "Code"), template.StringAt(p, "Status", "Message"), err
}

// stabilizePeering accepts the peering connection once its request is processed, and waits until it is active. That of
// another account is accepted there.
func stabilizePeering(ctx context.Context, req *Request) error {
	req.Attributes["Id"] = req.PhysicalID
	isOurs := req.stringProperty("PeerOwnerId") == "" || req.stringProperty("PeerOwnerId") == req.Engine.Account()

	return req.waitUntil(ctx, func() (bool, error) {
		state, message, err := peeringState(ctx, req)
		switch {
		case err != nil:
			return false, err
		case state == "failed":
			return false, errors.New(message)
		case state == "pending-acceptance" && !isOurs:
			return true, nil
		case state == "pending-acceptance":
			return false, req.runOperation(ctx,
				"ec2",
				"AcceptVpcPeeringConnection",
				template.Object{"VpcPeeringConnectionId": req.PhysicalID},
			)
		}

		return state == "active", nil
	})
}

func routeDestination(req *Request) string {
	for _, d := range routeDestinationProperties() {
		if t := req.stringProperty(d); t != "" {
			return t
		}
	}

	return ""
}

// findAssociation returns the route table association of the request's subnet.
func findAssociation(ctx context.Context, req *Request) (bool, error) {
	out, err := req.callOperation(ctx,
		"ec2",
		"DescribeRouteTables",
		template.Object{"RouteTableIds": []any{req.Properties["RouteTableId"]}},
	)

	for _, a := range template.ListAt(out, "RouteTables", 0, "Associations") {
		if template.StringAt(a, "SubnetId") == req.stringProperty("SubnetId") {
			req.PhysicalID = template.StringAt(a, "RouteTableAssociationId")
			return true, nil
		}
	}

	return false, err
}

// updateVPCEndpoint changes the route tables, subnets, groups and the policy of an endpoint.
func updateVPCEndpoint(ctx context.Context, req *Request) error {
	in := template.Object{"VpcEndpointId": req.PhysicalID}
	for _, name := range []string{"RouteTableIds", "SubnetIds", "SecurityGroupIds"} {
		more, fewer := diffLists(req.OldProperties[name], req.Properties[name])
		if len(more) > 0 {
			in["Add"+name] = more
		}

		if len(fewer) > 0 {
			in["Remove"+name] = fewer
		}
	}

	if req.propertyChanged("PrivateDnsEnabled") {
		in["PrivateDnsEnabled"] = req.Properties["PrivateDnsEnabled"]
	}

	if req.propertyChanged("PolicyDocument") {
		if p := req.policyDocument("PolicyDocument"); p != "" {
			in["PolicyDocument"] = p
		} else {
			in["ResetPolicy"] = true
		}
	}

	if len(in) > 1 {
		if err := req.runOperation(ctx, "ec2", "ModifyVpcEndpoint", in); err != nil {
			return err
		}
	}

	return updateEC2Tags(ctx, req)
}

// diffLists returns the items that only the new list has, and those that only the old list has.
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
