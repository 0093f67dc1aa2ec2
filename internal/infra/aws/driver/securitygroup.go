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

type securityGroupAPI interface {
	tagAPI
	DescribeSecurityGroups(
		context.Context,
		*ec2.DescribeSecurityGroupsInput,
		...func(*ec2.Options),
	) (*ec2.DescribeSecurityGroupsOutput, error)
	CreateSecurityGroup(
		context.Context,
		*ec2.CreateSecurityGroupInput,
		...func(*ec2.Options),
	) (*ec2.CreateSecurityGroupOutput, error)
	DeleteSecurityGroup(
		context.Context,
		*ec2.DeleteSecurityGroupInput,
		...func(*ec2.Options),
	) (*ec2.DeleteSecurityGroupOutput, error)
	ruleAPI
}

// registerSecurityGroups drives security groups. A new one comes with a rule that lets everything out; that goes at once, so
// that the only rules are those of the graph.
func registerSecurityGroups(c *Cloud, api securityGroupAPI, scope Scope) {
	c.addReader(
		func(ctx context.Context) ([]plan.ActualResource, error) { return readSecurityGroups(ctx, api, scope) },
		awskind.SecurityGroup{},
		awskind.SecurityGroupIngress{},
		awskind.SecurityGroupEgress{},
	)

	registerDriver(c, driver[awskind.SecurityGroup]{
		create: func(ctx context.Context, t task[awskind.SecurityGroup]) (plan.StepResult, error) {
			vpc := t.want.VPC.Literal()
			out, err := api.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
				VpcId:             &vpc,
				GroupName:         &t.want.Name,
				Description:       &t.want.Description,
				TagSpecifications: tagSpecifications(ec2types.ResourceTypeSecurityGroup, t.want.Tags),
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "create security group")
			}

			_, err = api.RevokeSecurityGroupEgress(
				ctx,
				&ec2.RevokeSecurityGroupEgressInput{
					GroupId: out.GroupId,
					IpPermissions: []ec2types.IpPermission{
						{
							IpProtocol: aws.String("-1"),
							IpRanges:   []ec2types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}},
						},
					},
				},
			)
			if transport.ErrorCode(err) == "InvalidPermission.NotFound" {
				err = nil // the group was created without that rule
			}

			id := aws.ToString(out.GroupId)

			return plan.StepResult{ID: id}, transport.Wrap(err, "remove the rule of %s that allows all outgoing traffic", id)
		},
		update: func(ctx context.Context, t task[awskind.SecurityGroup]) (plan.StepResult, error) {
			return keepIdentity(t), retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: func(ctx context.Context, t task[awskind.SecurityGroup]) error {
			_, err := api.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &t.id})
			return c.explainInUse(ctx, transport.Wrap(err, "delete"), "group-id", t.id)
		},
	})

	registerRules(c, api)
}

func readSecurityGroups(
	ctx context.Context,
	api securityGroupAPI,
	scope Scope,
) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	var ids []string
	pages := ec2.NewDescribeSecurityGroupsPaginator(
		api,
		&ec2.DescribeSecurityGroupsInput{Filters: clusterFilters(scope)},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list security groups")
		}

		for _, g := range page.SecurityGroups {
			r := awskind.SecurityGroup{
				VPC:         graph.UnmanagedRef[awskind.VPC](aws.ToString(g.VpcId)),
				Name:        aws.ToString(g.GroupName),
				Description: aws.ToString(g.Description),
				Tags:        FromEC2Tags(g.Tags),
			}

			ids = append(ids, aws.ToString(g.GroupId))
			out = append(
				out,
				plan.ActualResource{Addr: addressFromTags(r.Tags), ID: aws.ToString(g.GroupId), Resource: r},
			)
		}
	}

	if len(ids) == 0 {
		return nil, nil
	}

	found, err := ReadRules(ctx, api, ids)

	return append(out, found...), err
}
