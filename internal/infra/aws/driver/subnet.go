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

type subnetAPI interface {
	tagAPI
	ec2.DescribeSubnetsAPIClient
	CreateSubnet(
		context.Context,
		*ec2.CreateSubnetInput,
		...func(*ec2.Options),
	) (*ec2.CreateSubnetOutput, error)
	ModifySubnetAttribute(
		context.Context,
		*ec2.ModifySubnetAttributeInput,
		...func(*ec2.Options),
	) (*ec2.ModifySubnetAttributeOutput, error)
	DeleteSubnet(
		context.Context,
		*ec2.DeleteSubnetInput,
		...func(*ec2.Options),
	) (*ec2.DeleteSubnetOutput, error)
}

// registerSubnets registers the driver of subnets.
func registerSubnets(c *Cloud, api subnetAPI, scope Scope) {
	c.addReader(
		func(ctx context.Context) ([]plan.ActualResource, error) { return readSubnets(ctx, api, scope) },
		awskind.Subnet{},
	)

	registerDriver(c, driver[awskind.Subnet]{
		create: func(ctx context.Context, t task[awskind.Subnet]) (plan.StepResult, error) {
			vpc := t.want.VPC.Literal()
			out, err := api.CreateSubnet(ctx, &ec2.CreateSubnetInput{
				VpcId:             &vpc,
				CidrBlock:         &t.want.CIDR,
				AvailabilityZone:  &t.want.Zone,
				TagSpecifications: tagSpecifications(ec2types.ResourceTypeSubnet, t.want.Tags),
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "create subnet")
			}

			t.id = aws.ToString(out.Subnet.SubnetId)
			t.have = awskind.Subnet{Tags: t.want.Tags}

			return updateSubnet(ctx, api, t)
		},
		update: func(ctx context.Context, t task[awskind.Subnet]) (plan.StepResult, error) {
			return updateSubnet(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.Subnet]) error {
			_, err := api.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: &t.id})
			return c.explainInUse(ctx, transport.Wrap(err, "delete"), "subnet-id", t.id)
		},
	})
}

func updateSubnet(ctx context.Context, api subnetAPI, t task[awskind.Subnet]) (plan.StepResult, error) {
	if t.want.MapPublicIP != t.have.MapPublicIP {
		_, err := api.ModifySubnetAttribute(ctx, &ec2.ModifySubnetAttributeInput{
			SubnetId:            &t.id,
			MapPublicIpOnLaunch: &ec2types.AttributeBooleanValue{Value: &t.want.MapPublicIP},
		})
		if err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set the assignment of public addresses in %s", t.id)
		}
	}

	return keepIdentity(t), retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
}

func readSubnets(ctx context.Context, api subnetAPI, scope Scope) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	pages := ec2.NewDescribeSubnetsPaginator(api, &ec2.DescribeSubnetsInput{Filters: clusterFilters(scope)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list subnets")
		}

		for _, s := range page.Subnets {
			r := awskind.Subnet{
				VPC:         graph.UnmanagedRef[awskind.VPC](aws.ToString(s.VpcId)),
				CIDR:        aws.ToString(s.CidrBlock),
				Zone:        aws.ToString(s.AvailabilityZone),
				MapPublicIP: aws.ToBool(s.MapPublicIpOnLaunch),
				Tags:        FromEC2Tags(s.Tags),
			}

			out = append(out, newActual(s.SubnetId, r.Tags, r))
		}
	}

	return out, nil
}
