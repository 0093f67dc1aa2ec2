// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type subnetAPI interface {
	tagAPI
	DescribeSubnets(context.Context, *ec2.DescribeSubnetsInput, ...func(*ec2.Options)) (*ec2.DescribeSubnetsOutput, error)
	CreateSubnet(context.Context, *ec2.CreateSubnetInput, ...func(*ec2.Options)) (*ec2.CreateSubnetOutput, error)
	ModifySubnetAttribute(context.Context, *ec2.ModifySubnetAttributeInput, ...func(*ec2.Options)) (*ec2.ModifySubnetAttributeOutput, error)
	DeleteSubnet(context.Context, *ec2.DeleteSubnetInput, ...func(*ec2.Options)) (*ec2.DeleteSubnetOutput, error)
}

func subnets(c *Cloud, api subnetAPI, scope Scope) {
	c.find(func(ctx context.Context) ([]plan.Actual, error) { return readSubnets(ctx, api, scope) },
		awskind.Subnet{})
	register(c, driver[awskind.Subnet]{
		create: func(ctx context.Context, t task[awskind.Subnet]) (plan.Made, error) {
			vpc := t.want.VPC.Literal()
			out, err := api.CreateSubnet(ctx, &ec2.CreateSubnetInput{
				VpcId: &vpc, CidrBlock: &t.want.CIDR, AvailabilityZone: &t.want.Zone,
				TagSpecifications: specify(ec2types.ResourceTypeSubnet, t.want.Tags),
			})
			if err != nil {
				return plan.Made{}, wrap(err, "create subnet")
			}
			t.id, t.have = aws.ToString(out.Subnet.SubnetId), awskind.Subnet{Tags: t.want.Tags}
			return updateSubnet(ctx, api, t)
		},
		update: func(ctx context.Context, t task[awskind.Subnet]) (plan.Made, error) { return updateSubnet(ctx, api, t) },
		remove: func(ctx context.Context, t task[awskind.Subnet]) error {
			_, err := api.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: &t.id})
			return c.blocked(ctx, wrap(err, "delete"), "subnet-id", t.id)
		},
	})
}

func updateSubnet(ctx context.Context, api subnetAPI, t task[awskind.Subnet]) (plan.Made, error) {
	if t.want.MapPublicIP != t.have.MapPublicIP {
		_, err := api.ModifySubnetAttribute(ctx, &ec2.ModifySubnetAttributeInput{
			SubnetId: &t.id, MapPublicIpOnLaunch: &ec2types.AttributeBooleanValue{Value: &t.want.MapPublicIP},
		})
		if err != nil {
			return plan.Made{}, wrap(err, "set public addresses of %s", t.id)
		}
	}
	return kept(t), retag(ctx, api, t.id, t.want.Tags, t.have.Tags)
}

func readSubnets(ctx context.Context, api subnetAPI, scope Scope) ([]plan.Actual, error) {
	var out []plan.Actual
	pages := ec2.NewDescribeSubnetsPaginator(api, &ec2.DescribeSubnetsInput{Filters: ours(scope)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, wrap(err, "list subnets")
		}
		for _, s := range page.Subnets {
			r := awskind.Subnet{
				VPC: graph.Existing[awskind.VPC](aws.ToString(s.VpcId)), CIDR: aws.ToString(s.CidrBlock),
				Zone: aws.ToString(s.AvailabilityZone), MapPublicIP: aws.ToBool(s.MapPublicIpOnLaunch), Tags: fromEC2(s.Tags),
			}
			out = append(out, plan.Actual{Addr: addressOf(r.Tags), ID: aws.ToString(s.SubnetId), Resource: r})
		}
	}
	return out, nil
}
