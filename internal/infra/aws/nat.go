// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type addressAPI interface {
	tagAPI
	DescribeAddresses(context.Context, *ec2.DescribeAddressesInput, ...func(*ec2.Options)) (*ec2.DescribeAddressesOutput, error)
	AllocateAddress(context.Context, *ec2.AllocateAddressInput, ...func(*ec2.Options)) (*ec2.AllocateAddressOutput, error)
	ReleaseAddress(context.Context, *ec2.ReleaseAddressInput, ...func(*ec2.Options)) (*ec2.ReleaseAddressOutput, error)
}

// addresses drives elastic IP addresses.
func addresses(c *Cloud, api addressAPI, scope Scope) {
	c.find(func(ctx context.Context) ([]plan.Actual, error) {
		page, err := api.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{Filters: ours(scope)}) // it has no pages
		if err != nil {
			return nil, wrap(err, "list elastic IP addresses")
		}
		var out []plan.Actual
		for _, a := range page.Addresses {
			r := awskind.EIP{Domain: string(a.Domain), Tags: fromEC2(a.Tags)}
			out = append(out, plan.Actual{
				Addr: addressOf(r.Tags), ID: aws.ToString(a.AllocationId), Resource: r,
				Attributes: map[string]string{"PublicIp": aws.ToString(a.PublicIp)},
			})
		}
		return out, nil
	}, awskind.EIP{})
	register(c, driver[awskind.EIP]{
		create: func(ctx context.Context, t task[awskind.EIP]) (plan.Made, error) {
			out, err := api.AllocateAddress(ctx, &ec2.AllocateAddressInput{
				Domain: ec2types.DomainType(t.want.Domain), TagSpecifications: specify(ec2types.ResourceTypeElasticIp, t.want.Tags),
			})
			if err != nil {
				return plan.Made{}, wrap(err, "allocate an elastic IP address")
			}
			return plan.Made{ID: aws.ToString(out.AllocationId), Attributes: map[string]string{"PublicIp": aws.ToString(out.PublicIp)}}, nil
		},
		update: func(ctx context.Context, t task[awskind.EIP]) (plan.Made, error) {
			return kept(t), retag(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: func(ctx context.Context, t task[awskind.EIP]) error {
			_, err := api.ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: &t.id})
			if err = wrap(err, "release"); plan.ClassOf(err) == plan.InUse {
				return notYet("%w", err)
			}
			return err
		},
	})
}

type natAPI interface {
	tagAPI
	DescribeNatGateways(context.Context, *ec2.DescribeNatGatewaysInput, ...func(*ec2.Options)) (*ec2.DescribeNatGatewaysOutput, error)
	CreateNatGateway(context.Context, *ec2.CreateNatGatewayInput, ...func(*ec2.Options)) (*ec2.CreateNatGatewayOutput, error)
	DeleteNatGateway(context.Context, *ec2.DeleteNatGatewayInput, ...func(*ec2.Options)) (*ec2.DeleteNatGatewayOutput, error)
}

// natGateways drives NAT gateways. One that is not available yet takes no route, so creation waits.
func natGateways(c *Cloud, api natAPI, scope Scope) {
	looks := &batch[ec2types.NatGateway]{describe: func(ctx context.Context, ids []string) (map[string]ec2types.NatGateway, error) {
		list, err := describeNATs(ctx, api, &ec2.DescribeNatGatewaysInput{Filter: []ec2types.Filter{{Name: aws.String("nat-gateway-id"), Values: ids}}})
		out := map[string]ec2types.NatGateway{}
		for _, n := range list {
			out[aws.ToString(n.NatGatewayId)] = n
		}
		return out, err
	}}
	c.find(func(ctx context.Context) ([]plan.Actual, error) { return readNATs(ctx, api, scope) }, awskind.NATGateway{})
	register(c, driver[awskind.NATGateway]{
		create: func(ctx context.Context, t task[awskind.NATGateway]) (plan.Made, error) {
			subnet, eip := t.want.Subnet.Literal(), t.want.Allocation.Literal()
			out, err := api.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{
				SubnetId: &subnet, AllocationId: &eip, ClientToken: &t.token, TagSpecifications: specify(ec2types.ResourceTypeNatgateway, t.want.Tags),
			})
			if err != nil {
				return plan.Made{}, wrap(err, "create NAT gateway")
			}
			id := aws.ToString(out.NatGateway.NatGatewayId)
			err = looks.wait(ctx, id, func(n ec2types.NatGateway, found bool) (bool, error) {
				t.waiting(id + " is " + string(n.State))
				if n.State == ec2types.NatGatewayStateFailed {
					return false, fmt.Errorf("%s failed: %s", id, aws.ToString(n.FailureMessage))
				}
				return found && n.State == ec2types.NatGatewayStateAvailable, nil
			})
			return plan.Made{ID: id}, final(err, id)
		},
		update: func(ctx context.Context, t task[awskind.NATGateway]) (plan.Made, error) {
			return kept(t), retag(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: func(ctx context.Context, t task[awskind.NATGateway]) error {
			if _, err := api.DeleteNatGateway(ctx, &ec2.DeleteNatGatewayInput{NatGatewayId: &t.id}); err != nil {
				return wrap(err, "delete")
			}
			return looks.wait(ctx, t.id, func(n ec2types.NatGateway, found bool) (bool, error) {
				t.waiting(t.id + " is " + string(n.State))
				return !found || n.State == ec2types.NatGatewayStateDeleted, nil
			})
		},
	})
}

func describeNATs(ctx context.Context, api natAPI, in *ec2.DescribeNatGatewaysInput) ([]ec2types.NatGateway, error) {
	var out []ec2types.NatGateway
	pages := ec2.NewDescribeNatGatewaysPaginator(api, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, wrap(err, "list NAT gateways")
		}
		out = append(out, page.NatGateways...)
	}
	return out, nil
}

func readNATs(ctx context.Context, api natAPI, scope Scope) ([]plan.Actual, error) {
	list, err := describeNATs(ctx, api, &ec2.DescribeNatGatewaysInput{Filter: ours(scope)})
	if err != nil {
		return nil, err
	}
	var out []plan.Actual
	for _, n := range list {
		if n.State != ec2types.NatGatewayStatePending && n.State != ec2types.NatGatewayStateAvailable {
			continue // AWS lists a gateway for an hour after its end
		}
		r := awskind.NATGateway{Subnet: graph.Existing[awskind.Subnet](aws.ToString(n.SubnetId)), Tags: fromEC2(n.Tags)}
		for _, a := range n.NatGatewayAddresses {
			if a.AllocationId != nil {
				r.Allocation = graph.Existing[awskind.EIP](*a.AllocationId)
				break
			}
		}
		out = append(out, plan.Actual{Addr: addressOf(r.Tags), ID: aws.ToString(n.NatGatewayId), Resource: r})
	}
	return out, nil
}
