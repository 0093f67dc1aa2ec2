// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"
	"sync"

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
	ec2.DescribeSecurityGroupsAPIClient
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

// registerSecurityGroups registers the driver of security groups. AWS creates a group with a rule
// that allows all outgoing traffic. The driver removes it at once, so that the group has only the
// rules of the graph; it keeps it if the graph has the same rule.
func registerSecurityGroups(c *Cloud, api securityGroupAPI, scope Scope) {
	c.addReader(
		func(ctx context.Context) ([]plan.ActualResource, error) { return readSecurityGroups(ctx, api, scope) },
		awskind.SecurityGroup{},
		awskind.SecurityGroupIngress{},
		awskind.SecurityGroupEgress{},
	)
	defaults := &defaultRules{}
	c.planHooks = append(c.planHooks, defaults.expectPlan)

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

			id := aws.ToString(out.GroupId)
			if defaults.isWanted(t.step.Addr) {
				return plan.StepResult{ID: id}, nil
			}

			return plan.StepResult{ID: id}, removeDefaultRule(ctx, api, id)
		},
		update: func(ctx context.Context, t task[awskind.SecurityGroup]) (plan.StepResult, error) {
			return keepIdentity(t), retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: func(ctx context.Context, t task[awskind.SecurityGroup]) error {
			_, err := api.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &t.id})
			return c.explainInUse(ctx, transport.Wrap(err, "delete"), "group-id", t.id)
		},
	})

	registerRules(c, api, defaults)
}

// anyIPv4 are all IPv4 addresses.
const anyIPv4 = "0.0.0.0/0"

// defaultRules knows the new groups of a plan that have a rule like the one that AWS creates them with.
type defaultRules struct {
	mu     sync.Mutex
	wanted map[graph.Addr]bool
}

// expectPlan implements a plan hook.
func (d *defaultRules) expectPlan(p plan.Plan) {
	created := map[graph.Addr]bool{}
	for _, s := range p.Steps {
		created[s.Addr] = s.Action == plan.Create
	}

	wanted := map[graph.Addr]bool{}

	for _, s := range p.Steps {
		if group, ok := defaultRuleGroup(s); ok && created[group] {
			wanted[group] = true
		}
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = wanted
}

// isWanted reports whether the new group at addr keeps the rule that AWS creates it with.
func (d *defaultRules) isWanted(addr graph.Addr) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wanted[addr]
}

// isCreatedWithGroup reports whether AWS created the rule of a step with its group.
func (d *defaultRules) isCreatedWithGroup(s plan.Step) bool {
	group, ok := defaultRuleGroup(s)

	return ok && d.isWanted(group)
}

// defaultRuleGroup returns the address of the group of a step that creates a rule like the one that AWS creates
// new groups with; false for other steps.
func defaultRuleGroup(s plan.Step) (graph.Addr, bool) {
	r, ok := s.Desired().(awskind.SecurityGroupEgress)
	if !ok || s.Action != plan.Create {
		return "", false
	}

	group := r.Group.Addr()
	r.Group = graph.Ref[awskind.SecurityGroup]{}

	return group, group != "" && r == awskind.SecurityGroupEgress{Protocol: "-1", CIDR: anyIPv4}
}

// removeDefaultRule removes the rule that allows all outgoing traffic, if the group with id was
// created with it.
func removeDefaultRule(ctx context.Context, api securityGroupAPI, id string) error {
	everywhere := []ec2types.IpRange{{CidrIp: aws.String(anyIPv4)}}
	_, err := api.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{
		GroupId:       &id,
		IpPermissions: []ec2types.IpPermission{{IpProtocol: aws.String("-1"), IpRanges: everywhere}},
	})
	if transport.ErrorCode(err) == "InvalidPermission.NotFound" {
		return nil
	}

	return transport.Wrap(err, "remove the rule of %s that allows all outgoing traffic", id)
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
			out = append(out, newActual(g.GroupId, r.Tags, r))
		}
	}

	if len(ids) == 0 {
		return nil, nil
	}

	found, err := ReadRules(ctx, api, ids)

	return append(out, slices.DeleteFunc(found, isServiceRule)...), err
}
