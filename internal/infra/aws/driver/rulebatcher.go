// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// ruleBatcher are the calls that give rules to groups and take them away, many at once.
type ruleBatcher struct {
	api    ruleAPI
	allow  *callBatcher[groupRule]
	revoke *callBatcher[ruleRevocation]
}

// ruleRevocation is a rule that is to go.
type ruleRevocation struct{ group, id string }

// existingRuleID stands for the identity of a rule that was there already; nothing refers to one.
const existingRuleID = "exists"

// maxRulesPerCall is how many rules are sent in one call; AWS takes more, and gives a group 60 unless asked for more.
const maxRulesPerCall = 200

func newRuleBatcher(api ruleAPI) *ruleBatcher {
	c := &ruleBatcher{api: api}
	c.allow = &callBatcher[groupRule]{call: c.authorizeRules, expected: map[batchKey]int{}}
	c.revoke = &callBatcher[ruleRevocation]{call: c.revokeRules, expected: map[batchKey]int{}}

	return c
}

// expectPlan counts the rules that each group gets and loses.
func (c *ruleBatcher) expectPlan(p plan.Plan) {
	allow := map[batchKey]int{}
	revoke := map[batchKey]int{}
	for _, s := range p.Steps {
		if key := batchKeyOf(s, false); key.kind != "" &&
			(s.Action == plan.Create || s.Action == plan.Replace) {
			allow[key]++
		}

		if key := batchKeyOf(s, true); key.kind != "" &&
			(s.Action == plan.Delete || s.Action == plan.Replace) {
			revoke[key]++
		}
	}

	c.allow.expectItems(allow)
	c.revoke.expectItems(revoke)
}

// batchKeyOf is the group and direction of a step's rule; zero for other kinds. What is to go names its group by identity.
func batchKeyOf(
	s plan.Step,
	destroy bool,
) batchKey {
	r := s.Desired()
	if destroy {
		r = s.Actual()
	}

	var group graph.Ref[awskind.SecurityGroup]

	switch r := r.(type) {
	case awskind.SecurityGroupIngress:
		group = r.Group
	case awskind.SecurityGroupEgress:
		group = r.Group
	default:
		return batchKey{}
	}

	return batchKey{kind: s.Kind, parent: string(group.Addr()) + group.Literal()}
}

// authorizeRules gives rules to one group. AWS takes all or none, so where it refuses for a reason that may be one rule's,
// each is tried alone.
func (c *ruleBatcher) authorizeRules(ctx context.Context, key batchKey, rules []groupRule) []itemResult {
	var out []itemResult
	for some := range slices.Chunk(rules, maxRulesPerCall) {
		made, err := c.callAuthorize(ctx, key, some)
		if len(some) > 1 && shouldSplitBatch(err) {
			for _, r := range some {
				made, err := c.callAuthorize(ctx, key, []groupRule{r})
				out = append(out, authorizeResult(err, made, r))
			}

			continue
		}

		for _, r := range some {
			out = append(out, authorizeResult(err, made, r))
		}
	}

	return out
}

func (c *ruleBatcher) callAuthorize(
	ctx context.Context,
	key batchKey,
	rules []groupRule,
) ([]ec2types.SecurityGroupRule, error) {
	var ps []ec2types.IpPermission
	for _, r := range rules {
		ps = append(ps, r.toPermission())
	}

	if key.kind == (awskind.SecurityGroupEgress{}).Kind().Name {
		out, err := c.api.AuthorizeSecurityGroupEgress(
			ctx,
			&ec2.AuthorizeSecurityGroupEgressInput{GroupId: &rules[0].group, IpPermissions: ps},
		)
		if err != nil {
			return nil, transport.Wrap(err, "allow")
		}

		return out.SecurityGroupRules, nil
	}

	out, err := c.api.AuthorizeSecurityGroupIngress(
		ctx,
		&ec2.AuthorizeSecurityGroupIngressInput{GroupId: &rules[0].group, IpPermissions: ps},
	)
	if err != nil {
		return nil, transport.Wrap(err, "allow")
	}

	return out.SecurityGroupRules, nil
}

// authorizeResult is what came of a rule. One that is there already is the same rule: its content is its identity.
func authorizeResult(err error, made []ec2types.SecurityGroupRule, r groupRule) itemResult {
	if err != nil && plan.ErrorClassOf(err) != plan.AlreadyExists {
		return itemResult{err: err}
	}

	for _, m := range made {
		if got := ruleFromActual(fromRule(m)); got.sameRule(r) {
			return itemResult{made: plan.StepResult{ID: aws.ToString(m.SecurityGroupRuleId)}}
		}
	}

	return itemResult{made: plan.StepResult{ID: existingRuleID}}
}

// revokeRules takes rules from one group.
func (c *ruleBatcher) revokeRules(ctx context.Context, key batchKey, rules []ruleRevocation) []itemResult {
	var out []itemResult
	for some := range slices.Chunk(rules, maxRulesPerCall) {
		err := c.callRevoke(ctx, key, some)
		if len(some) > 1 && (shouldSplitBatch(err) || plan.ErrorClassOf(err) == plan.NotFound) {
			for _, r := range some {
				out = append(out, itemResult{err: c.callRevoke(ctx, key, []ruleRevocation{r})})
			}

			continue
		}

		for range some {
			out = append(out, itemResult{err: err})
		}
	}

	return out
}

func (c *ruleBatcher) callRevoke(ctx context.Context, key batchKey, rules []ruleRevocation) error {
	group := rules[0].group
	ids := make([]string, 0, len(rules))
	for _, r := range rules {
		ids = append(ids, r.id)
	}

	var err error
	if key.kind == (awskind.SecurityGroupEgress{}).Kind().Name {
		_, err = c.api.RevokeSecurityGroupEgress(
			ctx,
			&ec2.RevokeSecurityGroupEgressInput{GroupId: &group, SecurityGroupRuleIds: ids},
		)
	} else {
		_, err = c.api.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{GroupId: &group, SecurityGroupRuleIds: ids})
	}

	if len(ids) == 1 {
		return transport.Wrap(err, "revoke %s of %s", ids[0], group)
	}

	return transport.Wrap(err, "revoke %d rules of %s", len(ids), group)
}

// shouldSplitBatch says whether AWS refused a batch for what may be wrong with one item of it.
func shouldSplitBatch(err error) bool {
	var api smithy.APIError
	class := plan.ErrorClassOf(err)
	return errors.As(err, &api) && (class == plan.AlreadyExists || class == plan.Unclassified)
}
