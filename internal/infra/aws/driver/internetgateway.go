// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type gatewayAPI interface {
	tagAPI
	ec2.DescribeInternetGatewaysAPIClient
	CreateInternetGateway(
		context.Context,
		*ec2.CreateInternetGatewayInput,
		...func(*ec2.Options),
	) (*ec2.CreateInternetGatewayOutput, error)
	DeleteInternetGateway(
		context.Context,
		*ec2.DeleteInternetGatewayInput,
		...func(*ec2.Options),
	) (*ec2.DeleteInternetGatewayOutput, error)
}

// registerInternetGateways registers the driver of internet gateways. Its reader also finds their
// attachments.
func registerInternetGateways(c *Cloud, api gatewayAPI, scope Scope) {
	c.addReader(
		func(ctx context.Context) ([]plan.ActualResource, error) { return readGateways(ctx, api, scope) },
		awskind.InternetGateway{}, // with its attachment
	)

	registerDriver(c, driver[awskind.InternetGateway]{
		create: func(ctx context.Context, t task[awskind.InternetGateway]) (plan.StepResult, error) {
			out, err := api.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{
				TagSpecifications: tagSpecifications(ec2types.ResourceTypeInternetGateway, t.want.Tags),
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "create internet gateway")
			}

			return plan.StepResult{ID: aws.ToString(out.InternetGateway.InternetGatewayId)}, nil
		},
		update: func(ctx context.Context, t task[awskind.InternetGateway]) (plan.StepResult, error) {
			return keepIdentity(t), retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: func(ctx context.Context, t task[awskind.InternetGateway]) error {
			_, err := api.DeleteInternetGateway(
				ctx,
				&ec2.DeleteInternetGatewayInput{InternetGatewayId: &t.id},
			)

			return waitWhileInUse(transport.Wrap(err, "delete")) // EC2 may still show its attachment
		},
	})
}

func readGateways(ctx context.Context, api gatewayAPI, scope Scope) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	pages := ec2.NewDescribeInternetGatewaysPaginator(
		api,
		&ec2.DescribeInternetGatewaysInput{Filters: clusterFilters(scope)},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list internet gateways")
		}

		for _, g := range page.InternetGateways {
			id := aws.ToString(g.InternetGatewayId)
			r := awskind.InternetGateway{Tags: FromEC2Tags(g.Tags)}
			out = append(out, plan.ActualResource{Addr: addressFromTags(r.Tags), ID: id, Resource: r})

			for _, a := range g.Attachments {
				vpc := aws.ToString(a.VpcId)
				out = append(out, plan.ActualResource{ID: id + "/" + vpc, Resource: awskind.GatewayAttachment{
					VPC:     graph.UnmanagedRef[awskind.VPC](vpc),
					Gateway: graph.UnmanagedRef[awskind.InternetGateway](id),
				}})
			}
		}
	}

	return out, nil
}
