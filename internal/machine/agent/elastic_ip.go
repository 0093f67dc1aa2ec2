// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// ElasticIPAPI lists the EC2 operations for a cluster whose API endpoint is an Elastic IP address.
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

// AssociateElasticIP associates the slot's Elastic IP address with the instance. It does nothing if
// the address is already associated, because a repeated association would break connections.
func (c EC2Client) AssociateElasticIP(ctx context.Context, slot, instance string) error {
	out, err := c.EC2.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{
		Filters: []types.Filter{newFilter("tag:"+tagCluster, c.Cluster), newFilter("tag:"+tagSlot, slot)},
	})
	if err != nil {
		return fmt.Errorf("find the Elastic IP address of slot %s: %w", slot, err)
	}

	out.Addresses = slices.DeleteFunc(
		out.Addresses,
		func(a types.Address) bool { return !c.isOurs(a.Tags) },
	)
	if len(out.Addresses) != 1 {
		return newNotReadyError(
			"found %d Elastic IP addresses with the tags of slot %s, want 1",
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
		return fmt.Errorf("associate Elastic IP address %s: %w", aws.ToString(a.PublicIp), err)
	}

	return nil
}

// associateAPIAddress associates the API's Elastic IP address with this machine, if the cluster has
// one. It runs before the downloads because it breaks connections from the machine's previous
// public address.
func (a *Agent) associateAPIAddress(ctx context.Context) error {
	if !a.Boot.API.Elastic {
		return nil
	}

	return a.ec2Client().AssociateElasticIP(ctx, a.Boot.Slot, a.instance.ID)
}
