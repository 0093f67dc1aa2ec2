// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type addressAPI interface {
	tagAPI
	DescribeAddresses(
		context.Context,
		*ec2.DescribeAddressesInput,
		...func(*ec2.Options),
	) (*ec2.DescribeAddressesOutput, error)
	AllocateAddress(
		context.Context,
		*ec2.AllocateAddressInput,
		...func(*ec2.Options),
	) (*ec2.AllocateAddressOutput, error)
	ReleaseAddress(
		context.Context,
		*ec2.ReleaseAddressInput,
		...func(*ec2.Options),
	) (*ec2.ReleaseAddressOutput, error)
}

// registerAddresses registers the driver of elastic IP addresses.
func registerAddresses(c *Cloud, api addressAPI, scope Scope) {
	c.addReader(
		func(ctx context.Context) ([]plan.ActualResource, error) { return readAddresses(ctx, api, scope) },
		awskind.EIP{},
	)

	registerDriver(c, driver[awskind.EIP]{
		create: func(ctx context.Context, t task[awskind.EIP]) (plan.StepResult, error) {
			out, err := api.AllocateAddress(ctx, &ec2.AllocateAddressInput{
				Domain:            ec2types.DomainType(t.want.Domain),
				TagSpecifications: tagSpecifications(ec2types.ResourceTypeElasticIp, t.want.Tags),
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "allocate an elastic IP address")
			}

			return plan.StepResult{
				ID:         aws.ToString(out.AllocationId),
				Attributes: map[string]string{"PublicIp": aws.ToString(out.PublicIp)},
			}, nil
		},
		update: func(ctx context.Context, t task[awskind.EIP]) (plan.StepResult, error) {
			return keepIdentity(t), retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: func(ctx context.Context, t task[awskind.EIP]) error {
			_, err := api.ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: &t.id})
			if isHeldByService(err) {
				return transport.NotYet("%w", transport.Wrap(err, "release"))
			}

			return waitWhileInUse(transport.Wrap(err, "release"))
		},
	})
}

func readAddresses(ctx context.Context, api addressAPI, scope Scope) ([]plan.ActualResource, error) {
	in := &ec2.DescribeAddressesInput{Filters: clusterFilters(scope)}
	list, err := api.DescribeAddresses(ctx, in) // the call has no pages
	if err != nil {
		return nil, transport.Wrap(err, "list elastic IP addresses")
	}

	var out []plan.ActualResource

	for _, a := range list.Addresses {
		r := awskind.EIP{Domain: string(a.Domain), Tags: FromEC2Tags(a.Tags)}
		actual := newActual(a.AllocationId, r.Tags, r)
		actual.Attributes = map[string]string{"PublicIp": aws.ToString(a.PublicIp)}
		out = append(out, actual)
	}

	return out, nil
}
