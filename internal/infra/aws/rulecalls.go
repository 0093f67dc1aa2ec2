// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// ruleCalls are the calls that give rules to groups and take them away, many at once.
type ruleCalls struct {
	api    ruleAPI
	allow  *gathering[rule]
	revoke *gathering[revocation]
}

// revocation is a rule that is to go.
type revocation struct{ group, id string }

// ruleExists stands for the identity of a rule that was there already; nothing refers to one.
const ruleExists = "exists"

// maxRules is how many rules are sent in one call; AWS takes more, and gives a group 60 unless asked for more.
const maxRules = 200

func newRuleCalls(api ruleAPI) *ruleCalls {
	c := &ruleCalls{api: api}
	c.allow = &gathering[rule]{call: c.authorize, expect: map[batchKey]int{}}
	c.revoke = &gathering[revocation]{call: c.withdraw, expect: map[batchKey]int{}}
	return c
}

// begin counts the rules that each group gets and loses.
func (c *ruleCalls) begin(p plan.Plan) {
	allow, revoke := map[batchKey]int{}, map[batchKey]int{}
	for _, s := range p.Steps {
		if key := batchOf(s, false); key.kind != "" && (s.Action == plan.Create || s.Action == plan.Replace) {
			allow[key]++
		}
		if key := batchOf(s, true); key.kind != "" && (s.Action == plan.Delete || s.Action == plan.Replace) {
			revoke[key]++
		}
	}
	c.allow.begin(allow)
	c.revoke.begin(revoke)
}

// batchOf is the group and direction of a step's rule; zero for other kinds. What is to go names its group by identity.
func batchOf(s plan.Step, destroy bool) batchKey { //nolint:revive // destroy is which half of a step is meant
	r := s.Want()
	if destroy {
		r = s.Have()
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

// authorize gives rules to one group. AWS takes all or none, so where it refuses for a reason that may be one rule's,
// each is tried alone.
func (c *ruleCalls) authorize(ctx context.Context, key batchKey, rules []rule) []outcome {
	var out []outcome
	for some := range slices.Chunk(rules, maxRules) {
		made, err := c.grant(ctx, key, some)
		if len(some) > 1 && oneByOne(err) {
			for _, r := range some {
				made, err := c.grant(ctx, key, []rule{r})
				out = append(out, granted(err, made, r))
			}
			continue
		}
		for _, r := range some {
			out = append(out, granted(err, made, r))
		}
	}
	return out
}

func (c *ruleCalls) grant(ctx context.Context, key batchKey, rules []rule) ([]ec2types.SecurityGroupRule, error) {
	var ps []ec2types.IpPermission
	for _, r := range rules {
		ps = append(ps, r.permission())
	}
	if key.kind == (awskind.SecurityGroupEgress{}).Kind().Name {
		out, err := c.api.AuthorizeSecurityGroupEgress(ctx, &ec2.AuthorizeSecurityGroupEgressInput{GroupId: &rules[0].group, IpPermissions: ps})
		if err != nil {
			return nil, wrap(err, "allow")
		}
		return out.SecurityGroupRules, nil
	}
	out, err := c.api.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &rules[0].group, IpPermissions: ps})
	if err != nil {
		return nil, wrap(err, "allow")
	}
	return out.SecurityGroupRules, nil
}

// granted is what came of a rule. One that is there already is the same rule: its content is its identity.
func granted(err error, made []ec2types.SecurityGroupRule, r rule) outcome {
	if err != nil && plan.ClassOf(err) != plan.Exists {
		return outcome{err: err}
	}
	for _, m := range made {
		if got := ruleOf(fromRule(m)); got.same(r) {
			return outcome{made: plan.Made{ID: aws.ToString(m.SecurityGroupRuleId)}}
		}
	}
	return outcome{made: plan.Made{ID: ruleExists}}
}

// withdraw takes rules from one group.
func (c *ruleCalls) withdraw(ctx context.Context, key batchKey, rules []revocation) []outcome {
	var out []outcome
	for some := range slices.Chunk(rules, maxRules) {
		err := c.drop(ctx, key, some)
		if len(some) > 1 && (oneByOne(err) || plan.ClassOf(err) == plan.NotFound) {
			for _, r := range some {
				out = append(out, outcome{err: c.drop(ctx, key, []revocation{r})})
			}
			continue
		}
		for range some {
			out = append(out, outcome{err: err})
		}
	}
	return out
}

func (c *ruleCalls) drop(ctx context.Context, key batchKey, rules []revocation) error {
	group, ids := rules[0].group, make([]string, 0, len(rules))
	for _, r := range rules {
		ids = append(ids, r.id)
	}
	var err error
	if key.kind == (awskind.SecurityGroupEgress{}).Kind().Name {
		_, err = c.api.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{GroupId: &group, SecurityGroupRuleIds: ids})
	} else {
		_, err = c.api.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{GroupId: &group, SecurityGroupRuleIds: ids})
	}
	if len(ids) == 1 {
		return wrap(err, "revoke %s of %s", ids[0], group)
	}
	return wrap(err, "revoke %d rules of %s", len(ids), group)
}

// oneByOne says whether AWS refused a batch for what may be wrong with one item of it.
func oneByOne(err error) bool {
	var api smithy.APIError
	class := plan.ClassOf(err)
	return errors.As(err, &api) && (class == plan.Exists || class == plan.Other)
}
