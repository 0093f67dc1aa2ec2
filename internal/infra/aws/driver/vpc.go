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

type vpcAPI interface {
	tagAPI
	ec2.DescribeVpcsAPIClient
	DescribeVpcAttribute(
		context.Context,
		*ec2.DescribeVpcAttributeInput,
		...func(*ec2.Options),
	) (*ec2.DescribeVpcAttributeOutput, error)
	CreateVpc(context.Context, *ec2.CreateVpcInput, ...func(*ec2.Options)) (*ec2.CreateVpcOutput, error)
	ModifyVpcAttribute(
		context.Context,
		*ec2.ModifyVpcAttributeInput,
		...func(*ec2.Options),
	) (*ec2.ModifyVpcAttributeOutput, error)
	DeleteVpc(context.Context, *ec2.DeleteVpcInput, ...func(*ec2.Options)) (*ec2.DeleteVpcOutput, error)
}

// registerVPCs registers the driver of VPCs.
func registerVPCs(c *Cloud, api vpcAPI, scope Scope) {
	c.addReader(
		func(ctx context.Context) ([]plan.ActualResource, error) { return readVPCs(ctx, api, scope) },
		awskind.VPC{},
	)

	registerDriver(c, driver[awskind.VPC]{
		create: func(ctx context.Context, t task[awskind.VPC]) (plan.StepResult, error) {
			out, err := api.CreateVpc(ctx, &ec2.CreateVpcInput{
				CidrBlock:         &t.want.CIDR,
				TagSpecifications: tagSpecifications(ec2types.ResourceTypeVpc, t.want.Tags),
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "create VPC")
			}

			t.id = aws.ToString(out.Vpc.VpcId)
			t.have = awskind.VPC{DNSSupport: true, Tags: t.want.Tags} // the defaults of AWS

			return updateVPC(ctx, api, t)
		},
		update: func(ctx context.Context, t task[awskind.VPC]) (plan.StepResult, error) {
			return updateVPC(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.VPC]) error {
			_, err := api.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &t.id})
			return c.explainInUse(ctx, transport.Wrap(err, "delete"), "vpc-id", t.id)
		},
	})
}

func readVPCs(ctx context.Context, api vpcAPI, scope Scope) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	pages := ec2.NewDescribeVpcsPaginator(api, &ec2.DescribeVpcsInput{Filters: clusterFilters(scope)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list VPCs")
		}

		for _, v := range page.Vpcs {
			r, err := readVPC(ctx, api, v)
			if err != nil {
				return nil, err
			}

			out = append(out, newActual(v.VpcId, r.Tags, r))
		}
	}

	return out, nil
}

// readVPC returns v with its attributes.
func readVPC(ctx context.Context, api vpcAPI, v ec2types.Vpc) (awskind.VPC, error) {
	r := awskind.VPC{CIDR: aws.ToString(v.CidrBlock), Tags: FromEC2Tags(v.Tags)}
	if omitsDetails(ctx) {
		return r, nil
	}

	err := runBoth(
		func() (err error) {
			r.DNSSupport, err = readVPCAttribute(ctx, api, v.VpcId, ec2types.VpcAttributeNameEnableDnsSupport)
			return err
		},
		func() (err error) {
			r.DNSHostnames, err = readVPCAttribute(ctx, api, v.VpcId, ec2types.VpcAttributeNameEnableDnsHostnames)
			return err
		},
	)

	return r, err
}

// readVPCAttribute returns one of the boolean attributes that DescribeVpcs does not return.
func readVPCAttribute(
	ctx context.Context,
	api vpcAPI,
	id *string,
	name ec2types.VpcAttributeName,
) (bool, error) {
	out, err := api.DescribeVpcAttribute(ctx, &ec2.DescribeVpcAttributeInput{VpcId: id, Attribute: name})
	if err != nil {
		return false, transport.Wrap(err, "read %s of %s", name, aws.ToString(id))
	}

	for _, value := range []*ec2types.AttributeBooleanValue{out.EnableDnsSupport, out.EnableDnsHostnames} {
		if value != nil && aws.ToBool(value.Value) {
			return true, nil
		}
	}

	return false, nil
}

// updateVPC sets the DNS attributes and the tags that differ.
func updateVPC(ctx context.Context, api vpcAPI, t task[awskind.VPC]) (plan.StepResult, error) {
	if t.want.DNSSupport != t.have.DNSSupport {
		_, err := api.ModifyVpcAttribute(ctx, &ec2.ModifyVpcAttributeInput{
			VpcId:            &t.id,
			EnableDnsSupport: &ec2types.AttributeBooleanValue{Value: &t.want.DNSSupport},
		})
		if err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set DNS support of %s", t.id)
		}
	}

	if t.want.DNSHostnames != t.have.DNSHostnames {
		_, err := api.ModifyVpcAttribute(ctx, &ec2.ModifyVpcAttributeInput{
			VpcId:              &t.id,
			EnableDnsHostnames: &ec2types.AttributeBooleanValue{Value: &t.want.DNSHostnames},
		})
		if err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set DNS hostnames of %s", t.id)
		}
	}

	return keepIdentity(t), retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
}
