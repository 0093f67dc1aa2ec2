// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type ruleAPI interface {
	ec2.DescribeSecurityGroupRulesAPIClient
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

// groupRule is an ingress or an egress rule of a security group. One of cidr, cidr6, prefixList and
// peer is set.
type groupRule struct {
	group       string // the id of the security group
	protocol    string // tcp, udp or -1 for all
	cidr        string // an IPv4 range
	cidr6       string // an IPv6 range
	prefixList  string // the id of a prefix list
	peer        string // the id of the security group of the other side
	description string
	from        int // the first port; 0 for all protocols
	to          int // the last port; 0 for all protocols
}

func ruleFromIngress(r awskind.SecurityGroupIngress) groupRule {
	return groupRule{
		group:       r.Group.Literal(),
		protocol:    r.Protocol,
		cidr:        r.CIDR,
		cidr6:       r.CIDRv6,
		prefixList:  r.PrefixList,
		peer:        r.Source.Literal(),
		description: r.Description,
		from:        r.FromPort,
		to:          r.ToPort,
	}
}

func ruleFromEgress(r awskind.SecurityGroupEgress) groupRule {
	return groupRule{
		group:       r.Group.Literal(),
		protocol:    r.Protocol,
		cidr:        r.CIDR,
		cidr6:       r.CIDRv6,
		prefixList:  r.PrefixList,
		peer:        r.Destination.Literal(),
		description: r.Description,
		from:        r.FromPort,
		to:          r.ToPort,
	}
}

// registerRules registers the drivers of the rules of security groups. Rules are read through their
// group, so that rules that were added by hand are found too. All rules that one group gains or
// loses in one direction are sent in one call.
func registerRules(c *Cloud, api ruleAPI, defaults *defaultRules) {
	calls := newRuleBatcher(api)
	calls.isCreatedWithGroup = defaults.isCreatedWithGroup
	c.planHooks = append(c.planHooks, calls.expectPlan)
	registerDriver(c, driver[awskind.SecurityGroupIngress]{
		create: func(ctx context.Context, t task[awskind.SecurityGroupIngress]) (plan.StepResult, error) {
			return calls.allow.submit(ctx, batchKeyOf(t.step.Kind, t.step.Desired()), ruleFromIngress(t.want))
		},
		update: func(ctx context.Context, t task[awskind.SecurityGroupIngress]) (plan.StepResult, error) {
			return keepIdentity(t), ruleFromIngress(t.want).updateDescription(ctx, api, t.id)
		},
		remove: func(ctx context.Context, t task[awskind.SecurityGroupIngress]) error {
			_, err := calls.revoke.submit(
				ctx,
				batchKeyOf(t.step.Kind, t.step.Actual()),
				ruleRevocation{group: t.have.Group.Literal(), id: t.id},
			)

			return err
		},
	})

	registerDriver(c, driver[awskind.SecurityGroupEgress]{
		create: func(ctx context.Context, t task[awskind.SecurityGroupEgress]) (plan.StepResult, error) {
			if defaults.isCreatedWithGroup(t.step) {
				return plan.StepResult{ID: existingRuleID}, nil
			}

			return calls.allow.submit(ctx, batchKeyOf(t.step.Kind, t.step.Desired()), ruleFromEgress(t.want))
		},
		update: func(ctx context.Context, t task[awskind.SecurityGroupEgress]) (plan.StepResult, error) {
			return keepIdentity(t), ruleFromEgress(t.want).updateDescription(ctx, api, t.id)
		},
		remove: func(ctx context.Context, t task[awskind.SecurityGroupEgress]) error {
			_, err := calls.revoke.submit(
				ctx,
				batchKeyOf(t.step.Kind, t.step.Actual()),
				ruleRevocation{group: t.have.Group.Literal(), id: t.id},
			)

			return err
		},
	})
}

// ruleFromActual returns an existing rule.
func ruleFromActual(a plan.ActualResource) groupRule {
	switch r := a.Resource.(type) {
	case awskind.SecurityGroupIngress:
		return ruleFromIngress(r)
	case awskind.SecurityGroupEgress:
		return ruleFromEgress(r)
	}

	return groupRule{}
}

// sameRule reports whether two rules of a group are the same to AWS: they may differ in their
// description.
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

// toPermission returns r as the input of calls that authorize rules.
func (r groupRule) toPermission() ec2types.IpPermission {
	p := ec2types.IpPermission{IpProtocol: &r.protocol}
	if r.protocol != "-1" {
		p.FromPort = aws.Int32(int32(r.from))
		p.ToPort = aws.Int32(int32(r.to))
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

// updateDescription sets the description of the rule with id. AWS identifies rules by all else,
// which cannot change.
func (r groupRule) updateDescription(ctx context.Context, api ruleAPI, id string) error {
	req := &ec2types.SecurityGroupRuleRequest{
		IpProtocol:        &r.protocol,
		CidrIpv4:          stringOrNil(r.cidr),
		CidrIpv6:          stringOrNil(r.cidr6),
		PrefixListId:      stringOrNil(r.prefixList),
		ReferencedGroupId: stringOrNil(r.peer),
		Description:       stringOrNil(r.description), // AWS removes a description that is not given
		FromPort:          aws.Int32(-1),
		ToPort:            aws.Int32(-1),
	}
	if r.protocol != "-1" {
		req.FromPort = aws.Int32(int32(r.from))
		req.ToPort = aws.Int32(int32(r.to))
	}

	_, err := api.ModifySecurityGroupRules(ctx, &ec2.ModifySecurityGroupRulesInput{
		GroupId: &r.group,
		SecurityGroupRules: []ec2types.SecurityGroupRuleUpdate{
			{SecurityGroupRuleId: &id, SecurityGroupRule: req},
		},
	})

	return transport.Wrap(err, "set the description of rule %s", id)
}

// maxFilterValues is how many values EC2 accepts in one filter.
const maxFilterValues = 200

// ReadRules returns the rules of the security groups with the ids groups.
func ReadRules(
	ctx context.Context,
	api ec2.DescribeSecurityGroupRulesAPIClient,
	groups []string,
) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	for ids := range slices.Chunk(groups, maxFilterValues) {
		in := &ec2.DescribeSecurityGroupRulesInput{Filters: NewFilters("group-id", ids...)}
		pages := ec2.NewDescribeSecurityGroupRulesPaginator(api, in)

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

// fromRule returns r as the ingress or egress rule that it is.
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
