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
	ec2.DescribeNatGatewaysAPIClient
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

// natGatewayDriver is the driver of NAT gateways.
type natGatewayDriver struct {
	api    natAPI
	poller *transport.StatePoller[ec2types.NatGateway]
}

// registerNATGateways registers the driver of NAT gateways. A route to a gateway is refused before
// the gateway is available, so its creation waits.
func registerNATGateways(c *Cloud, api natAPI, scope Scope) {
	d := &natGatewayDriver{api: api}
	d.poller = &transport.StatePoller[ec2types.NatGateway]{Describe: d.describeByID}

	c.addReader(
		func(ctx context.Context) ([]plan.ActualResource, error) { return readNATGateways(ctx, api, scope) },
		awskind.NATGateway{},
	)

	registerDriver(c, driver[awskind.NATGateway]{
		create: d.createGateway,
		update: func(ctx context.Context, t task[awskind.NATGateway]) (plan.StepResult, error) {
			return keepIdentity(t), retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: d.deleteGateway,
	})
}

func (d *natGatewayDriver) createGateway(
	ctx context.Context,
	t task[awskind.NATGateway],
) (plan.StepResult, error) {
	subnet := t.want.Subnet.Literal()
	eip := t.want.Allocation.Literal()
	out, err := d.api.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{
		SubnetId:          &subnet,
		AllocationId:      &eip,
		ClientToken:       &t.token,
		TagSpecifications: tagSpecifications(ec2types.ResourceTypeNatgateway, t.want.Tags),
	})
	if err != nil {
		return plan.StepResult{}, transport.Wrap(err, "create NAT gateway")
	}

	id := aws.ToString(out.NatGateway.NatGatewayId)
	err = d.poller.WaitUntil(ctx, id, func(n ec2types.NatGateway, found bool) (bool, error) {
		t.reportWaiting(id + " is " + string(n.State))
		if n.State == ec2types.NatGatewayStateFailed {
			return false, fmt.Errorf("%s failed: %s", id, aws.ToString(n.FailureMessage))
		}

		return found && n.State == ec2types.NatGatewayStateAvailable, nil
	})

	return plan.StepResult{ID: id}, transport.MarkNotRetryable(err, id)
}

// deleteGateway deletes a gateway and waits until it is deleted: until then it keeps its address
// and its subnet in use.
func (d *natGatewayDriver) deleteGateway(ctx context.Context, t task[awskind.NATGateway]) error {
	if _, err := d.api.DeleteNatGateway(ctx, &ec2.DeleteNatGatewayInput{NatGatewayId: &t.id}); err != nil {
		return transport.Wrap(err, "delete")
	}

	return d.poller.WaitUntil(ctx, t.id, func(n ec2types.NatGateway, found bool) (bool, error) {
		t.reportWaiting(t.id + " is " + string(n.State))
		return !found || n.State == ec2types.NatGatewayStateDeleted, nil
	})
}

// describeByID returns the gateways with ids.
func (d *natGatewayDriver) describeByID(
	ctx context.Context,
	ids []string,
) (map[string]ec2types.NatGateway, error) {
	filters := NewFilters("nat-gateway-id", ids...)
	list, err := describeNATGateways(ctx, d.api, &ec2.DescribeNatGatewaysInput{Filter: filters})

	out := map[string]ec2types.NatGateway{}
	for _, n := range list {
		out[aws.ToString(n.NatGatewayId)] = n
	}

	return out, err
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
			continue // AWS lists a gateway for an hour after its deletion
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

		out = append(out, newActual(n.NatGatewayId, r.Tags, r))
	}

	return out, nil
}
