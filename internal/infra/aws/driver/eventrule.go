// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type eventRuleAPI interface {
	DescribeRule(
		context.Context,
		*eventbridge.DescribeRuleInput,
		...func(*eventbridge.Options),
	) (*eventbridge.DescribeRuleOutput, error)
	PutRule(
		context.Context,
		*eventbridge.PutRuleInput,
		...func(*eventbridge.Options),
	) (*eventbridge.PutRuleOutput, error)
	DeleteRule(
		context.Context,
		*eventbridge.DeleteRuleInput,
		...func(*eventbridge.Options),
	) (*eventbridge.DeleteRuleOutput, error)
	eventTargetAPI
	eventTagAPI
}

type eventTargetAPI interface {
	ListTargetsByRule(
		context.Context,
		*eventbridge.ListTargetsByRuleInput,
		...func(*eventbridge.Options),
	) (*eventbridge.ListTargetsByRuleOutput, error)
	PutTargets(
		context.Context,
		*eventbridge.PutTargetsInput,
		...func(*eventbridge.Options),
	) (*eventbridge.PutTargetsOutput, error)
	RemoveTargets(
		context.Context,
		*eventbridge.RemoveTargetsInput,
		...func(*eventbridge.Options),
	) (*eventbridge.RemoveTargetsOutput, error)
}

type eventTagAPI interface {
	ListTagsForResource(
		context.Context,
		*eventbridge.ListTagsForResourceInput,
		...func(*eventbridge.Options),
	) (*eventbridge.ListTagsForResourceOutput, error)
	TagResource(
		context.Context,
		*eventbridge.TagResourceInput,
		...func(*eventbridge.Options),
	) (*eventbridge.TagResourceOutput, error)
	UntagResource(
		context.Context,
		*eventbridge.UntagResourceInput,
		...func(*eventbridge.Options),
	) (*eventbridge.UntagResourceOutput, error)
}

// registerEventRules registers the driver of rules of EventBridge. The rule of a function has the function's name.
func registerEventRules(c *Cloud, api eventRuleAPI) {
	c.addReader(func(ctx context.Context) ([]plan.ActualResource, error) {
		return c.function.readWith(func(name string) ([]plan.ActualResource, error) {
			return readEventRule(ctx, api, name)
		})
	}, awskind.EventRule{})

	registerDriver(c, driver[awskind.EventRule]{
		create: func(ctx context.Context, t task[awskind.EventRule]) (plan.StepResult, error) {
			return putEventRule(ctx, api, t)
		},
		update: func(ctx context.Context, t task[awskind.EventRule]) (plan.StepResult, error) {
			return putEventRule(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.EventRule]) error {
			if err := removeEventTargets(ctx, api, t.id, targetIDs(t.have.Targets)); err != nil {
				return err
			}

			_, err := api.DeleteRule(ctx, &eventbridge.DeleteRuleInput{Name: &t.id})
			return transport.Wrap(err, "delete")
		},
	})
}

// readEventRule returns the rule with a name and its targets; nothing if there is none.
func readEventRule(ctx context.Context, api eventRuleAPI, name string) ([]plan.ActualResource, error) {
	rule, err := api.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: &name})
	err = transport.Wrap(err, "read rule %s of EventBridge", name)
	if plan.ErrorClassOf(err) == plan.NotFound {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	r := awskind.EventRule{
		Name:        name,
		Description: aws.ToString(rule.Description),
		Pattern:     graph.CanonicalJSON(aws.ToString(rule.EventPattern)),
		Schedule:    aws.ToString(rule.ScheduleExpression),
		State:       string(rule.State),
		Tags:        awskind.Tags{},
	}

	if r.Targets, err = listEventTargets(ctx, api, name); err != nil {
		return nil, err
	}

	tags, err := api.ListTagsForResource(ctx, &eventbridge.ListTagsForResourceInput{ResourceARN: rule.Arn})
	if err != nil {
		return nil, transport.Wrap(err, "list the tags of rule %s", name)
	}

	for _, t := range tags.Tags {
		r.Tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}

	out := newActual(&name, r.Tags, r)
	out.Attributes = map[string]string{"Arn": aws.ToString(rule.Arn)}

	return []plan.ActualResource{out}, nil
}

// putEventRule creates or changes a rule, its targets and its tags. EventBridge takes tags only with a new rule.
func putEventRule(ctx context.Context, api eventRuleAPI, t task[awskind.EventRule]) (plan.StepResult, error) {
	w := t.want
	in := &eventbridge.PutRuleInput{
		Name:               &w.Name,
		Description:        stringOrNil(w.Description),
		EventPattern:       stringOrNil(string(w.Pattern)),
		ScheduleExpression: stringOrNil(w.Schedule),
		State:              eventtypes.RuleState(w.State),
	}
	if t.id == "" {
		in.Tags = toEventTags(w.Tags)
	}

	out, err := api.PutRule(ctx, in)
	if err != nil {
		return plan.StepResult{}, transport.Wrap(err, "put rule %s of EventBridge", w.Name)
	}

	arn := aws.ToString(out.RuleArn)
	result := plan.StepResult{ID: w.Name, Attributes: map[string]string{"Arn": arn}}
	if err := syncEventTargets(ctx, api, t); err != nil {
		return result, err
	}

	if t.id == "" {
		return result, nil
	}

	return result, retagEventRule(ctx, api, arn, w.Tags, t.have.Tags)
}

// syncEventTargets puts the targets of a rule, and removes those that it is not to have.
func syncEventTargets(ctx context.Context, api eventTargetAPI, t task[awskind.EventRule]) error {
	_, fewer := diffLists(targetIDs(t.want.Targets), targetIDs(t.have.Targets))
	if err := removeEventTargets(ctx, api, t.want.Name, fewer); err != nil {
		return err
	}

	if len(t.want.Targets) == 0 || slices.EqualFunc(t.want.Targets, t.have.Targets, isSameTarget) {
		return nil
	}

	in := &eventbridge.PutTargetsInput{Rule: &t.want.Name}
	for _, target := range t.want.Targets {
		arn, _ := target.ARN.Literal()
		in.Targets = append(in.Targets, eventtypes.Target{Id: &target.ID, Arn: &arn})
	}

	out, err := api.PutTargets(ctx, in)
	if err != nil {
		return transport.Wrap(err, "put the targets of rule %s", t.want.Name)
	}

	for _, f := range out.FailedEntries {
		return fmt.Errorf("put target %s of rule %s: %s: %s", aws.ToString(f.TargetId), t.want.Name,
			aws.ToString(f.ErrorCode), aws.ToString(f.ErrorMessage))
	}

	return nil
}

// isSameTarget reports whether two targets have the same id and the same known ARN.
func isSameTarget(a, b awskind.EventTarget) bool {
	first, _ := a.ARN.Literal()
	second, _ := b.ARN.Literal()

	return a.ID == b.ID && first == second
}

func targetIDs(targets []awskind.EventTarget) []string {
	var out []string
	for _, t := range targets {
		out = append(out, t.ID)
	}

	return out
}

func removeEventTargets(ctx context.Context, api eventTargetAPI, rule string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}

	_, err := api.RemoveTargets(ctx, &eventbridge.RemoveTargetsInput{Rule: &rule, Ids: ids})

	return transport.Wrap(err, "remove the targets of rule %s", rule)
}

func toEventTags(tags awskind.Tags) []eventtypes.Tag {
	var out []eventtypes.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, eventtypes.Tag{Key: &k, Value: aws.String(tags[k])})
	}

	return out
}

func retagEventRule(ctx context.Context, api eventTagAPI, arn string, want, have awskind.Tags) error {
	set, remove := diffTags(want, have)
	if len(set) > 0 {
		in := &eventbridge.TagResourceInput{ResourceARN: &arn, Tags: toEventTags(set)}
		if _, err := api.TagResource(ctx, in); err != nil {
			return transport.Wrap(err, "tag %s", arn)
		}
	}

	if len(remove) > 0 {
		in := &eventbridge.UntagResourceInput{ResourceARN: &arn, TagKeys: remove}
		if _, err := api.UntagResource(ctx, in); err != nil {
			return transport.Wrap(err, "untag %s", arn)
		}
	}

	return nil
}

// listEventTargets returns the targets of a rule. The SDK has no paginator for them.
func listEventTargets(ctx context.Context, api eventTargetAPI, rule string) ([]awskind.EventTarget, error) {
	var out []awskind.EventTarget

	in := &eventbridge.ListTargetsByRuleInput{Rule: &rule}
	for {
		page, err := api.ListTargetsByRule(ctx, in)
		if err != nil {
			return nil, transport.Wrap(err, "list the targets of rule %s", rule)
		}

		for _, t := range page.Targets {
			out = append(out, awskind.EventTarget{
				ID:  aws.ToString(t.Id),
				ARN: graph.LiteralText(aws.ToString(t.Arn)),
			})
		}

		if page.NextToken == nil {
			return out, nil
		}

		in.NextToken = page.NextToken
	}
}
