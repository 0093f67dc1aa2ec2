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

// ruleBatcher authorizes and revokes rules of security groups, many in one call.
type ruleBatcher struct {
	api    ruleAPI
	allow  *callBatcher[groupRule]
	revoke *callBatcher[ruleRevocation]
	// isCreatedWithGroup reports whether the rule of a step needs no call; nil: none.
	isCreatedWithGroup func(plan.Step) bool
}

// ruleRevocation is the revocation of the rule with id of a security group.
type ruleRevocation struct{ group, id string }

// existingRuleID is the id in the result of a rule that existed already. No resource refers to a
// rule by its id.
const existingRuleID = "exists"

// maxRulesPerCall is how many rules are sent in one call. AWS accepts more; a group has at most 60
// rules by default.
const maxRulesPerCall = 200

func newRuleBatcher(api ruleAPI) *ruleBatcher {
	c := &ruleBatcher{api: api}
	c.allow = &callBatcher[groupRule]{call: c.authorizeRules, expected: map[batchKey]int{}}
	c.revoke = &callBatcher[ruleRevocation]{call: c.revokeRules, expected: map[batchKey]int{}}

	return c
}

// expectPlan counts the rules that each group gains and loses, so that each batch is complete
// before it is sent.
func (c *ruleBatcher) expectPlan(p plan.Plan) {
	allow := map[batchKey]int{}
	revoke := map[batchKey]int{}
	for _, s := range p.Steps {
		creates := s.Action == plan.Create || s.Action == plan.Replace
		if c.isCreatedWithGroup != nil && c.isCreatedWithGroup(s) {
			creates = false
		}

		if key := batchKeyOf(s.Kind, s.Desired()); creates && key.kind != "" {
			allow[key]++
		}

		deletes := (s.Action == plan.Delete || s.Action == plan.Replace) && s.DeletedWith() == ""
		if key := batchKeyOf(s.Kind, s.Actual()); deletes && key.kind != "" {
			revoke[key]++
		}
	}

	c.allow.expectItems(allow)
	c.revoke.expectItems(revoke)
}

// batchKeyOf returns the batch of a rule: those of its group in its direction. It is zero for other
// kinds. A desired rule refers to its group by address, an existing rule by id.
func batchKeyOf(kind string, r graph.Resource) batchKey {
	var group graph.Ref[awskind.SecurityGroup]

	switch r := r.(type) {
	case awskind.SecurityGroupIngress:
		group = r.Group
	case awskind.SecurityGroupEgress:
		group = r.Group
	default:
		return batchKey{}
	}

	return batchKey{kind: kind, parent: string(group.Addr()) + group.Literal()}
}

// authorizeRules adds rules to one group. AWS adds all rules of a call or none. If it refuses for a
// reason that may concern a single rule, each rule is sent alone.
func (c *ruleBatcher) authorizeRules(ctx context.Context, key batchKey, rules []groupRule) []itemResult {
	var out []itemResult
	for chunk := range slices.Chunk(rules, maxRulesPerCall) {
		created, err := c.callAuthorize(ctx, key, chunk)
		if len(chunk) > 1 && shouldSplitBatch(err) {
			for _, r := range chunk {
				created, err := c.callAuthorize(ctx, key, []groupRule{r})
				out = append(out, authorizeResult(err, created, r))
			}

			continue
		}

		for _, r := range chunk {
			out = append(out, authorizeResult(err, created, r))
		}
	}

	return out
}

func (c *ruleBatcher) callAuthorize(
	ctx context.Context,
	key batchKey,
	rules []groupRule,
) ([]ec2types.SecurityGroupRule, error) {
	var permissions []ec2types.IpPermission
	for _, r := range rules {
		permissions = append(permissions, r.toPermission())
	}

	if key.kind == (awskind.SecurityGroupEgress{}).Kind().Name {
		out, err := c.api.AuthorizeSecurityGroupEgress(
			ctx,
			&ec2.AuthorizeSecurityGroupEgressInput{GroupId: &rules[0].group, IpPermissions: permissions},
		)
		if err != nil {
			return nil, transport.Wrap(err, "authorize rules of %s", rules[0].group)
		}

		return out.SecurityGroupRules, nil
	}

	out, err := c.api.AuthorizeSecurityGroupIngress(
		ctx,
		&ec2.AuthorizeSecurityGroupIngressInput{GroupId: &rules[0].group, IpPermissions: permissions},
	)
	if err != nil {
		return nil, transport.Wrap(err, "authorize rules of %s", rules[0].group)
	}

	return out.SecurityGroupRules, nil
}

// authorizeResult returns the result of one rule. If the rule exists already, that counts as
// success: AWS identifies rules by their content.
func authorizeResult(err error, created []ec2types.SecurityGroupRule, r groupRule) itemResult {
	if err != nil && plan.ErrorClassOf(err) != plan.AlreadyExists {
		return itemResult{err: err}
	}

	for _, s := range created {
		if got := ruleFromActual(fromRule(s)); got.sameRule(r) {
			return itemResult{result: plan.StepResult{ID: aws.ToString(s.SecurityGroupRuleId)}}
		}
	}

	return itemResult{result: plan.StepResult{ID: existingRuleID}}
}

// revokeRules removes rules from one group. As with authorizeRules, rules that AWS refuses together
// are sent alone.
func (c *ruleBatcher) revokeRules(ctx context.Context, key batchKey, rules []ruleRevocation) []itemResult {
	var out []itemResult
	for chunk := range slices.Chunk(rules, maxRulesPerCall) {
		err := c.callRevoke(ctx, key, chunk)
		if len(chunk) > 1 && (shouldSplitBatch(err) || plan.ErrorClassOf(err) == plan.NotFound) {
			for _, r := range chunk {
				out = append(out, itemResult{err: c.callRevoke(ctx, key, []ruleRevocation{r})})
			}

			continue
		}

		for range chunk {
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
		_, err = c.api.RevokeSecurityGroupIngress(
			ctx,
			&ec2.RevokeSecurityGroupIngressInput{GroupId: &group, SecurityGroupRuleIds: ids},
		)
	}

	if len(ids) == 1 {
		return transport.Wrap(err, "revoke %s of %s", ids[0], group)
	}

	return transport.Wrap(err, "revoke %d rules of %s", len(ids), group)
}

// shouldSplitBatch reports whether AWS refused a batch for a reason that may concern one item of
// it.
func shouldSplitBatch(err error) bool {
	var api smithy.APIError
	class := plan.ErrorClassOf(err)
	return errors.As(err, &api) && (class == plan.AlreadyExists || class == plan.Unclassified)
}
