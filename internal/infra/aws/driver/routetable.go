// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type routeTableAPI interface {
	tagAPI
	ec2.DescribeRouteTablesAPIClient
	CreateRouteTable(
		context.Context,
		*ec2.CreateRouteTableInput,
		...func(*ec2.Options),
	) (*ec2.CreateRouteTableOutput, error)
	DeleteRouteTable(
		context.Context,
		*ec2.DeleteRouteTableInput,
		...func(*ec2.Options),
	) (*ec2.DeleteRouteTableOutput, error)
	associationAPI
}

// registerRouteTables registers the driver of route tables. Its reader also finds their routes and
// associations.
func registerRouteTables(c *Cloud, api routeTableAPI, scope Scope) {
	c.addReader(
		func(ctx context.Context) ([]plan.ActualResource, error) { return readRouteTables(ctx, api, scope) },
		awskind.RouteTable{},
		awskind.Route{},
	)

	registerDriver(c, driver[awskind.RouteTable]{
		create: func(ctx context.Context, t task[awskind.RouteTable]) (plan.StepResult, error) {
			vpc := t.want.VPC.Literal()
			out, err := api.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{
				VpcId:             &vpc,
				ClientToken:       &t.token,
				TagSpecifications: tagSpecifications(ec2types.ResourceTypeRouteTable, t.want.Tags),
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "create route table")
			}

			return plan.StepResult{ID: aws.ToString(out.RouteTable.RouteTableId)}, nil
		},
		update: func(ctx context.Context, t task[awskind.RouteTable]) (plan.StepResult, error) {
			return keepIdentity(t), retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: func(ctx context.Context, t task[awskind.RouteTable]) error {
			return deleteRouteTable(ctx, api, t.id)
		},
	})
}

// deleteRouteTable deletes a route table. Its associations were deleted with their subnets. If AWS still has
// some, they are deleted first.
func deleteRouteTable(ctx context.Context, api routeTableAPI, id string) error {
	in := &ec2.DeleteRouteTableInput{RouteTableId: &id}
	_, err := api.DeleteRouteTable(ctx, in)
	if err = transport.Wrap(err, "delete"); plan.ErrorClassOf(err) != plan.InUse {
		return err
	}

	found, describeErr := api.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{id}})
	if describeErr != nil {
		return waitWhileInUse(err)
	}

	for _, rt := range found.RouteTables {
		for _, a := range rt.Associations {
			if aws.ToBool(a.Main) || isDisassociated(a) {
				continue
			}

			association := &ec2.DisassociateRouteTableInput{AssociationId: a.RouteTableAssociationId}
			if _, err := api.DisassociateRouteTable(ctx, association); err != nil {
				return transport.Wrap(err, "disassociate the route table from %s", aws.ToString(a.SubnetId))
			}
		}
	}

	_, err = api.DeleteRouteTable(ctx, in)

	return waitWhileInUse(transport.Wrap(err, "delete"))
}

func readRouteTables(ctx context.Context, api routeTableAPI, scope Scope) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	pages := ec2.NewDescribeRouteTablesPaginator(
		api,
		&ec2.DescribeRouteTablesInput{Filters: clusterFilters(scope)},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list route tables")
		}

		for _, rt := range page.RouteTables {
			out = append(out, fromRouteTable(rt)...)
		}
	}

	return out, nil
}

// findInTable returns the id of the route or association of a route table that isWanted accepts, or "" if the table has
// none. Their drivers call it after AWS has refused to create what exists already: until AWS lists a new one, a plan does
// not know that it exists.
func findInTable(
	ctx context.Context,
	api ec2.DescribeRouteTablesAPIClient,
	table string,
	isWanted func(graph.Resource) bool,
) (string, error) {
	found, err := api.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{table}})
	if err != nil {
		return "", transport.Wrap(err, "describe route table %s", table)
	}

	for _, rt := range found.RouteTables {
		for _, a := range fromRouteTable(rt) {
			if isWanted(a.Resource) {
				return a.ID, nil
			}
		}
	}

	return "", nil
}

// fromRouteTable returns a table, its routes except those that AWS manages, and its associations
// with subnets.
func fromRouteTable(rt ec2types.RouteTable) []plan.ActualResource {
	id := aws.ToString(rt.RouteTableId)
	table := graph.UnmanagedRef[awskind.RouteTable](id)
	r := awskind.RouteTable{
		VPC:  graph.UnmanagedRef[awskind.VPC](aws.ToString(rt.VpcId)),
		Tags: FromEC2Tags(rt.Tags),
	}

	out := []plan.ActualResource{{Addr: addressFromTags(r.Tags), ID: id, Resource: r}}

	for _, route := range rt.Routes {
		gateway := aws.ToString(route.GatewayId)
		dest := aws.ToString(route.DestinationCidrBlock)
		if dest == "" || isManagedRoute(route) {
			continue
		}

		out = append(out, plan.ActualResource{ID: id + "/" + dest, Resource: awskind.Route{
			Table:       table,
			Destination: dest,
			Gateway:     graph.UnmanagedRef[awskind.InternetGateway](gateway),
			NAT:         graph.UnmanagedRef[awskind.NATGateway](aws.ToString(route.NatGatewayId)),
			Peering:     graph.UnmanagedRef[awskind.VPCPeering](aws.ToString(route.VpcPeeringConnectionId)),
		}})
	}

	for _, a := range rt.Associations {
		if a.SubnetId == nil || isDisassociated(a) {
			continue
		}

		subnet := graph.UnmanagedRef[awskind.Subnet](*a.SubnetId)
		out = append(out, plan.ActualResource{
			ID:       aws.ToString(a.RouteTableAssociationId),
			Resource: awskind.RouteTableAssociation{Subnet: subnet, Table: table},
		})
	}

	return out
}

// isManagedRoute reports whether AWS manages a route: the local route of the VPC, a route of a
// gateway endpoint, which is created and deleted with its endpoint, or a route that a virtual
// private gateway propagates.
func isManagedRoute(route ec2types.Route) bool {
	gateway := aws.ToString(route.GatewayId)

	return gateway == "local" ||
		strings.HasPrefix(gateway, "vpce-") ||
		route.Origin == ec2types.RouteOriginEnableVgwRoutePropagation
}

func isDisassociated(a ec2types.RouteTableAssociation) bool {
	return a.AssociationState != nil &&
		a.AssociationState.State == ec2types.RouteTableAssociationStateCodeDisassociated
}
