// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type natAPI interface {
	tagAPI
	DescribeNatGateways(
		context.Context,
		*ec2.DescribeNatGatewaysInput,
		...func(*ec2.Options),
	) (*ec2.DescribeNatGatewaysOutput, error)
	CreateNatGateway(
		context.Context,
		*ec2.CreateNatGatewayInput,
		...func(*ec2.Options),
	) (*ec2.CreateNatGatewayOutput, error)
	DeleteNatGateway(
		context.Context,
		*ec2.DeleteNatGatewayInput,
		...func(*ec2.Options),
	) (*ec2.DeleteNatGatewayOutput, error)
}

// registerNATGateways drives NAT gateways. One that is not available yet takes no route, so creation waits.
func registerNATGateways(c *Cloud, api natAPI, scope Scope) {
	poller := &transport.StatePoller[ec2types.NatGateway]{
		Describe: func(ctx context.Context, ids []string) (map[string]ec2types.NatGateway, error) {
			list, err := describeNATGateways(
				ctx,
				api,
				&ec2.DescribeNatGatewaysInput{
					Filter: []ec2types.Filter{{Name: aws.String("nat-gateway-id"), Values: ids}},
				},
			)

			out := map[string]ec2types.NatGateway{}
			for _, n := range list {
				out[aws.ToString(n.NatGatewayId)] = n
			}

			return out, err
		},
	}

	c.addReader(
		func(ctx context.Context) ([]plan.ActualResource, error) { return readNATGateways(ctx, api, scope) },
		awskind.NATGateway{},
	)

	registerDriver(c, driver[awskind.NATGateway]{
		create: func(ctx context.Context, t task[awskind.NATGateway]) (plan.StepResult, error) {
			subnet := t.want.Subnet.Literal()
			eip := t.want.Allocation.Literal()
			out, err := api.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{
				SubnetId:          &subnet,
				AllocationId:      &eip,
				ClientToken:       &t.token,
				TagSpecifications: tagSpecifications(ec2types.ResourceTypeNatgateway, t.want.Tags),
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "create NAT gateway")
			}

			id := aws.ToString(out.NatGateway.NatGatewayId)
			err = poller.WaitUntil(ctx, id, func(n ec2types.NatGateway, found bool) (bool, error) {
				t.reportWaiting(id + " is " + string(n.State))
				if n.State == ec2types.NatGatewayStateFailed {
					return false, fmt.Errorf("%s failed: %s", id, aws.ToString(n.FailureMessage))
				}

				return found && n.State == ec2types.NatGatewayStateAvailable, nil
			})

			return plan.StepResult{ID: id}, transport.MarkNotRetryable(err, id)
		},
		update: func(ctx context.Context, t task[awskind.NATGateway]) (plan.StepResult, error) {
			return keepIdentity(t), retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: func(ctx context.Context, t task[awskind.NATGateway]) error {
			if _, err := api.DeleteNatGateway(ctx, &ec2.DeleteNatGatewayInput{NatGatewayId: &t.id}); err != nil {
				return transport.Wrap(err, "delete")
			}

			return poller.WaitUntil(ctx, t.id, func(n ec2types.NatGateway, found bool) (bool, error) {
				t.reportWaiting(t.id + " is " + string(n.State))
				return !found || n.State == ec2types.NatGatewayStateDeleted, nil
			})
		},
	})
}

func describeNATGateways(
	ctx context.Context,
	api natAPI,
	in *ec2.DescribeNatGatewaysInput,
) ([]ec2types.NatGateway, error) {
	var out []ec2types.NatGateway
	pages := ec2.NewDescribeNatGatewaysPaginator(api, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list NAT gateways")
		}

		out = append(out, page.NatGateways...)
	}

	return out, nil
}

func readNATGateways(ctx context.Context, api natAPI, scope Scope) ([]plan.ActualResource, error) {
	list, err := describeNATGateways(ctx, api, &ec2.DescribeNatGatewaysInput{Filter: clusterFilters(scope)})
	if err != nil {
		return nil, err
	}

	var out []plan.ActualResource

	for _, n := range list {
		if n.State != ec2types.NatGatewayStatePending && n.State != ec2types.NatGatewayStateAvailable {
			continue // AWS lists a gateway for an hour after its end
		}

		r := awskind.NATGateway{
			Subnet: graph.UnmanagedRef[awskind.Subnet](aws.ToString(n.SubnetId)),
			Tags:   FromEC2Tags(n.Tags),
		}

		for _, a := range n.NatGatewayAddresses {
			if a.AllocationId != nil {
				r.Allocation = graph.UnmanagedRef[awskind.EIP](*a.AllocationId)
				break
			}
		}

		out = append(
			out,
			plan.ActualResource{Addr: addressFromTags(r.Tags), ID: aws.ToString(n.NatGatewayId), Resource: r},
		)
	}

	return out, nil
}
