// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type routeAPI interface {
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
