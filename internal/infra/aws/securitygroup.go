// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type groupAPI interface {
	tagAPI
	DescribeSecurityGroups(context.Context, *ec2.DescribeSecurityGroupsInput, ...func(*ec2.Options)) (*ec2.DescribeSecurityGroupsOutput, error)
	CreateSecurityGroup(context.Context, *ec2.CreateSecurityGroupInput, ...func(*ec2.Options)) (*ec2.CreateSecurityGroupOutput, error)
	DeleteSecurityGroup(context.Context, *ec2.DeleteSecurityGroupInput, ...func(*ec2.Options)) (*ec2.DeleteSecurityGroupOutput, error)
	ruleAPI
}

// securityGroups drives security groups. A new one comes with a rule that lets everything out; that goes at once, so
// that the only rules are those of the graph.
func securityGroups(c *Cloud, api groupAPI, scope Scope) {
	c.find(func(ctx context.Context) ([]plan.Actual, error) { return readGroups(ctx, api, scope) },
		awskind.SecurityGroup{}, awskind.SecurityGroupIngress{}, awskind.SecurityGroupEgress{})
	register(c, driver[awskind.SecurityGroup]{
		create: func(ctx context.Context, t task[awskind.SecurityGroup]) (plan.Made, error) {
			vpc := t.want.VPC.Literal()
			out, err := api.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
				VpcId: &vpc, GroupName: &t.want.Name, Description: &t.want.Description,
				TagSpecifications: specify(ec2types.ResourceTypeSecurityGroup, t.want.Tags),
			})
			if err != nil {
				return plan.Made{}, wrap(err, "create security group")
			}
			_, err = api.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{GroupId: out.GroupId, IpPermissions: []ec2types.IpPermission{
				{IpProtocol: aws.String("-1"), IpRanges: []ec2types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}}},
			}})
			if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == "InvalidPermission.NotFound" {
				err = nil // it came without one
			}
			return plan.Made{ID: aws.ToString(out.GroupId)}, wrap(err, "remove the rule that lets everything out of %s", aws.ToString(out.GroupId))
		},
		update: func(ctx context.Context, t task[awskind.SecurityGroup]) (plan.Made, error) {
			return kept(t), retag(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: func(ctx context.Context, t task[awskind.SecurityGroup]) error {
			_, err := api.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &t.id})
			return c.blocked(ctx, wrap(err, "delete"), "group-id", t.id)
		},
	})
	rules(c, api)
}

func readGroups(ctx context.Context, api groupAPI, scope Scope) ([]plan.Actual, error) {
	var out []plan.Actual
	var ids []string
	pages := ec2.NewDescribeSecurityGroupsPaginator(api, &ec2.DescribeSecurityGroupsInput{Filters: ours(scope)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, wrap(err, "list security groups")
		}
		for _, g := range page.SecurityGroups {
			r := awskind.SecurityGroup{
				VPC: graph.Existing[awskind.VPC](aws.ToString(g.VpcId)), Name: aws.ToString(g.GroupName),
				Description: aws.ToString(g.Description), Tags: fromEC2(g.Tags),
			}
			ids = append(ids, aws.ToString(g.GroupId))
			out = append(out, plan.Actual{Addr: addressOf(r.Tags), ID: aws.ToString(g.GroupId), Resource: r})
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := readRules(ctx, api, ids)
	return append(out, found...), err
}
