// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type associationAPI interface {
	ec2.DescribeRouteTablesAPIClient
	AssociateRouteTable(
		context.Context,
		*ec2.AssociateRouteTableInput,
		...func(*ec2.Options),
	) (*ec2.AssociateRouteTableOutput, error)
	DisassociateRouteTable(
		context.Context,
		*ec2.DisassociateRouteTableInput,
		...func(*ec2.Options),
	) (*ec2.DisassociateRouteTableOutput, error)
}

// registerRouteTableAssociations registers the driver of the associations of route tables with
// subnets. They are read with their tables.
func registerRouteTableAssociations(c *Cloud, api associationAPI) {
	registerDriver(c, driver[awskind.RouteTableAssociation]{
		create: func(ctx context.Context, t task[awskind.RouteTableAssociation]) (plan.StepResult, error) {
			table := t.want.Table.Literal()
			subnet := t.want.Subnet.Literal()
			out, err := api.AssociateRouteTable(
				ctx,
				&ec2.AssociateRouteTableInput{RouteTableId: &table, SubnetId: &subnet},
			)
			if transport.ErrorCode(err) == "Resource.AlreadyAssociated" {
				if id := findAssociation(ctx, api, t.want); id != "" {
					return plan.StepResult{ID: id}, nil
				}
			}

			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "associate %s with %s", table, subnet)
			}

			return plan.StepResult{ID: aws.ToString(out.AssociationId)}, nil
		},
		remove: func(ctx context.Context, t task[awskind.RouteTableAssociation]) error {
			_, err := api.DisassociateRouteTable(ctx, &ec2.DisassociateRouteTableInput{AssociationId: &t.id})
			return transport.Wrap(err, "disassociate the route table from %s", t.have.Subnet.Literal())
		},
	})
}

// findAssociation returns the id of the association of want's table with want's subnet, or "" if there is none or the
// table cannot be read.
func findAssociation(ctx context.Context, api associationAPI, want awskind.RouteTableAssociation) string {
	id, err := findInTable(ctx, api, want.Table.Literal(), func(r graph.Resource) bool {
		have, ok := r.(awskind.RouteTableAssociation)

		return ok && have.Subnet.Literal() == want.Subnet.Literal()
	})
	if err != nil {
		return ""
	}

	return id
}
