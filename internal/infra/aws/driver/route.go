// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type routeAPI interface {
	ec2.DescribeRouteTablesAPIClient
	CreateRoute(context.Context, *ec2.CreateRouteInput, ...func(*ec2.Options)) (*ec2.CreateRouteOutput, error)
	ReplaceRoute(
		context.Context,
		*ec2.ReplaceRouteInput,
		...func(*ec2.Options),
	) (*ec2.ReplaceRouteOutput, error)
	DeleteRoute(context.Context, *ec2.DeleteRouteInput, ...func(*ec2.Options)) (*ec2.DeleteRouteOutput, error)
}

// registerRoutes registers the driver of routes. They are read with their tables.
func registerRoutes(c *Cloud, api routeAPI) {
	registerDriver(c, driver[awskind.Route]{
		create: func(ctx context.Context, t task[awskind.Route]) (plan.StepResult, error) {
			table := t.want.Table.Literal()
			dest := t.want.Destination
			_, err := api.CreateRoute(ctx, &ec2.CreateRouteInput{
				RouteTableId:           &table,
				DestinationCidrBlock:   &dest,
				GatewayId:              stringOrNil(t.want.Gateway.Literal()),
				NatGatewayId:           stringOrNil(t.want.NAT.Literal()),
				VpcPeeringConnectionId: stringOrNil(t.want.Peering.Literal()),
			})

			err = transport.Wrap(err, "create route %s in %s", dest, table)
			if plan.ErrorClassOf(err) == plan.AlreadyExists && hasRoute(ctx, api, t.want) {
				err = nil
			}

			return plan.StepResult{ID: table + "/" + dest}, err
		},
		update: func(ctx context.Context, t task[awskind.Route]) (plan.StepResult, error) {
			table := t.want.Table.Literal()
			dest := t.want.Destination
			_, err := api.ReplaceRoute(ctx, &ec2.ReplaceRouteInput{
				RouteTableId:           &table,
				DestinationCidrBlock:   &dest,
				GatewayId:              stringOrNil(t.want.Gateway.Literal()),
				NatGatewayId:           stringOrNil(t.want.NAT.Literal()),
				VpcPeeringConnectionId: stringOrNil(t.want.Peering.Literal()),
			})

			return keepIdentity(t), transport.Wrap(err, "replace route %s in %s", dest, table)
		},
		remove: func(ctx context.Context, t task[awskind.Route]) error {
			table := t.have.Table.Literal()
			dest := t.have.Destination
			_, err := api.DeleteRoute(
				ctx,
				&ec2.DeleteRouteInput{RouteTableId: &table, DestinationCidrBlock: &dest},
			)

			return transport.Wrap(err, "delete route %s in %s", dest, table)
		},
	})
}

// hasRoute reports whether the table of want has this very route. It reports false if the table cannot be read.
func hasRoute(ctx context.Context, api routeAPI, want awskind.Route) bool {
	id, err := findInTable(ctx, api, want.Table.Literal(), func(r graph.Resource) bool {
		have, ok := r.(awskind.Route)

		return ok && have.Destination == want.Destination && have.Gateway.Literal() == want.Gateway.Literal() &&
			have.NAT.Literal() == want.NAT.Literal() && have.Peering.Literal() == want.Peering.Literal()
	})

	return err == nil && id != ""
}
