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

type ruleAPI interface {
	DescribeSecurityGroupRules(
		context.Context,
		*ec2.DescribeSecurityGroupRulesInput,
		...func(*ec2.Options),
	) (*ec2.DescribeSecurityGroupRulesOutput, error)
	AuthorizeSecurityGroupIngress(
		context.Context,
		*ec2.AuthorizeSecurityGroupIngressInput,
		...func(*ec2.Options),
	) (*ec2.AuthorizeSecurityGroupIngressOutput, error)
	AuthorizeSecurityGroupEgress(
		context.Context,
		*ec2.AuthorizeSecurityGroupEgressInput,
		...func(*ec2.Options),
	) (*ec2.AuthorizeSecurityGroupEgressOutput, error)
	RevokeSecurityGroupIngress(
		context.Context,
		*ec2.RevokeSecurityGroupIngressInput,
		...func(*ec2.Options),
	) (*ec2.RevokeSecurityGroupIngressOutput, error)
	RevokeSecurityGroupEgress(
		context.Context,
		*ec2.RevokeSecurityGroupEgressInput,
		...func(*ec2.Options),
	) (*ec2.RevokeSecurityGroupEgressOutput, error)
	ModifySecurityGroupRules(
		context.Context,
		*ec2.ModifySecurityGroupRulesInput,
		...func(*ec2.Options),
	) (*ec2.ModifySecurityGroupRulesOutput, error)
}

// groupRule is what an ingress and an egress rule have in common.
type groupRule struct {
	group, protocol, cidr, cidr6, prefixList, peer, description string
	from, to                                                    int
}

func ruleFromIngress(r awskind.SecurityGroupIngress) groupRule {
	return groupRule{
		r.Group.Literal(),
		r.Protocol,
		r.CIDR,
		r.CIDRv6,
		r.PrefixList,
		r.Source.Literal(),
		r.Description,
		r.FromPort,
		r.ToPort,
	}
}

func ruleFromEgress(r awskind.SecurityGroupEgress) groupRule {
	return groupRule{
		r.Group.Literal(),
		r.Protocol,
		r.CIDR,
		r.CIDRv6,
		r.PrefixList,
		r.Destination.Literal(),
		r.Description,
		r.FromPort,
		r.ToPort,
	}
}

// registerRules drives the rules of security groups. They are found through their group, so that a rule that somebody added by
// hand is seen too. All rules that one group gets, or loses, in one direction are one call.
func registerRules(c *Cloud, api ruleAPI) {
	calls := newRuleBatcher(api)
	c.planHooks = append(c.planHooks, calls.expectPlan)
	registerDriver(c, driver[awskind.SecurityGroupIngress]{
		create: func(ctx context.Context, t task[awskind.SecurityGroupIngress]) (plan.StepResult, error) {
			return calls.allow.submit(ctx, batchKeyOf(t.step, false), ruleFromIngress(t.want))
		},
		update: func(ctx context.Context, t task[awskind.SecurityGroupIngress]) (plan.StepResult, error) {
			return keepIdentity(t), ruleFromIngress(t.want).updateDescription(ctx, api, t.id)
		},
		remove: func(ctx context.Context, t task[awskind.SecurityGroupIngress]) error {
			_, err := calls.revoke.submit(
				ctx,
				batchKeyOf(t.step, true),
				ruleRevocation{group: t.have.Group.Literal(), id: t.id},
			)

			return err
		},
	})

	registerDriver(c, driver[awskind.SecurityGroupEgress]{
		create: func(ctx context.Context, t task[awskind.SecurityGroupEgress]) (plan.StepResult, error) {
			return calls.allow.submit(ctx, batchKeyOf(t.step, false), ruleFromEgress(t.want))
		},
		update: func(ctx context.Context, t task[awskind.SecurityGroupEgress]) (plan.StepResult, error) {
			return keepIdentity(t), ruleFromEgress(t.want).updateDescription(ctx, api, t.id)
		},
		remove: func(ctx context.Context, t task[awskind.SecurityGroupEgress]) error {
			_, err := calls.revoke.submit(
				ctx,
				batchKeyOf(t.step, true),
				ruleRevocation{group: t.have.Group.Literal(), id: t.id},
			)

			return err
		},
	})
}

// ruleFromActual is the rule that a reading found.
func ruleFromActual(a plan.ActualResource) groupRule {
	switch r := a.Resource.(type) {
	case awskind.SecurityGroupIngress:
		return ruleFromIngress(r)
	case awskind.SecurityGroupEgress:
		return ruleFromEgress(r)
	}

	return groupRule{}
}

// sameRule says whether AWS takes two rules of a group for one: all but the description counts.
func (r groupRule) sameRule(other groupRule) bool {
	r.description = ""
	other.description = ""
	r.group = ""
	other.group = ""
	if r.protocol == "-1" {
		r.from = other.from
		r.to = other.to
	}

	return r == other
}

func (r groupRule) toPermission() ec2types.IpPermission {
	p := ec2types.IpPermission{IpProtocol: &r.protocol}
	if r.protocol != "-1" {
		p.FromPort, p.ToPort = aws.Int32(int32(r.from)), aws.Int32(int32(r.to))
	}

	d := stringOrNil(r.description)

	switch {
	case r.peer != "":
		p.UserIdGroupPairs = []ec2types.UserIdGroupPair{{GroupId: &r.peer, Description: d}}
	case r.cidr6 != "":
		p.Ipv6Ranges = []ec2types.Ipv6Range{{CidrIpv6: &r.cidr6, Description: d}}
	case r.prefixList != "":
		p.PrefixListIds = []ec2types.PrefixListId{{PrefixListId: &r.prefixList, Description: d}}
	default:
		p.IpRanges = []ec2types.IpRange{{CidrIp: &r.cidr, Description: d}}
	}

	return p
}

// updateDescription sets the description, the only thing about a rule that is not its identity.
func (r groupRule) updateDescription(ctx context.Context, api ruleAPI, id string) error {
	req := &ec2types.SecurityGroupRuleRequest{
		IpProtocol:        &r.protocol,
		CidrIpv4:          stringOrNil(r.cidr),
		CidrIpv6:          stringOrNil(r.cidr6),
		PrefixListId:      stringOrNil(r.prefixList),
		ReferencedGroupId: stringOrNil(r.peer),
		Description:       &r.description,
		FromPort:          aws.Int32(-1),
		ToPort:            aws.Int32(-1),
	}
	if r.protocol != "-1" {
		req.FromPort, req.ToPort = aws.Int32(int32(r.from)), aws.Int32(int32(r.to))
	}

	_, err := api.ModifySecurityGroupRules(ctx, &ec2.ModifySecurityGroupRulesInput{
		GroupId: &r.group,
		SecurityGroupRules: []ec2types.SecurityGroupRuleUpdate{
			{SecurityGroupRuleId: &id, SecurityGroupRule: req},
		},
	})

	return transport.Wrap(err, "describe rule %s", id)
}

// maxFilterValues is how many values EC2 takes in one filter.
const maxFilterValues = 200

func ReadRules(
	ctx context.Context,
	api ec2.DescribeSecurityGroupRulesAPIClient,
	groups []string,
) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	for start := 0; start < len(groups); start += maxFilterValues {
		pages := ec2.NewDescribeSecurityGroupRulesPaginator(
			api,
			&ec2.DescribeSecurityGroupRulesInput{Filters: []ec2types.Filter{
				{Name: aws.String("group-id"), Values: groups[start:min(start+maxFilterValues, len(groups))]},
			}},
		)

		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, transport.Wrap(err, "list the rules of security groups")
			}

			for _, r := range page.SecurityGroupRules {
				out = append(out, fromRule(r))
			}
		}
	}

	return out, nil
}

func fromRule(r ec2types.SecurityGroupRule) plan.ActualResource {
	from := int(aws.ToInt32(r.FromPort))
	to := int(aws.ToInt32(r.ToPort))
	protocol := aws.ToString(r.IpProtocol)
	if protocol == "-1" {
		from = 0
		to = 0
	}

	var peer graph.Ref[awskind.SecurityGroup]
	if r.ReferencedGroupInfo != nil {
		peer = graph.UnmanagedRef[awskind.SecurityGroup](aws.ToString(r.ReferencedGroupInfo.GroupId))
	}

	a := plan.ActualResource{ID: aws.ToString(r.SecurityGroupRuleId)}
	group := graph.UnmanagedRef[awskind.SecurityGroup](aws.ToString(r.GroupId))
	if aws.ToBool(r.IsEgress) {
		a.Resource = awskind.SecurityGroupEgress{
			Group:       group,
			Protocol:    protocol,
			FromPort:    from,
			ToPort:      to,
			CIDR:        aws.ToString(r.CidrIpv4),
			CIDRv6:      aws.ToString(r.CidrIpv6),
			PrefixList:  aws.ToString(r.PrefixListId),
			Destination: peer,
			Description: aws.ToString(r.Description),
		}

		return a
	}

	a.Resource = awskind.SecurityGroupIngress{
		Group:       group,
		Protocol:    protocol,
		FromPort:    from,
		ToPort:      to,
		CIDR:        aws.ToString(r.CidrIpv4),
		CIDRv6:      aws.ToString(r.CidrIpv6),
		PrefixList:  aws.ToString(r.PrefixListId),
		Source:      peer,
		Description: aws.ToString(r.Description),
	}

	return a
}
