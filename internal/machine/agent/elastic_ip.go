// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// ElasticIPAPI is what the agent asks EC2 where the API is at an address that goes from machine to machine.
type ElasticIPAPI interface {
	DescribeAddresses(
		context.Context,
		*ec2.DescribeAddressesInput,
		...func(*ec2.Options),
	) (*ec2.DescribeAddressesOutput, error)
	AssociateAddress(
		context.Context,
		*ec2.AssociateAddressInput,
		...func(*ec2.Options),
	) (*ec2.AssociateAddressOutput, error)
}

// AssociateElasticIP gives the slot's elastic IP address to the instance. One that it has already is left alone: what is
// repeated disturbs no connection.
func (c EC2Client) AssociateElasticIP(ctx context.Context, slot, instance string) error {
	out, err := c.EC2.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{
		Filters: []types.Filter{newFilter("tag:"+tagCluster, c.Cluster), newFilter("tag:"+tagSlot, slot)},
	})
	if err != nil {
		return fmt.Errorf("find the address of slot %s: %w", slot, err)
	}

	if len(out.Addresses) != 1 {
		return newNotReadyError(
			"%d elastic IP addresses have the tags of slot %s, not one",
			len(out.Addresses),
			slot,
		)
	}

	a := out.Addresses[0]
	if aws.ToString(a.InstanceId) == instance {
		return nil
	}

	_, err = c.EC2.AssociateAddress(ctx, &ec2.AssociateAddressInput{
		AllocationId: a.AllocationId, InstanceId: &instance, AllowReassociation: aws.Bool(true),
	})
	if err != nil {
		return fmt.Errorf("take the address %s: %w", aws.ToString(a.PublicIp), err)
	}

	return nil
}

// associateAPIAddress takes the API's address, if the API is at an address of its own and not behind a load balancer. It comes before
// the downloads, since connections from the machine's former address end.
func (a *Agent) associateAPIAddress(ctx context.Context) error {
	if !a.Boot.API.Elastic {
		return nil
	}

	return a.ec2Client().AssociateElasticIP(ctx, a.Boot.Slot, a.instance.ID)
}
