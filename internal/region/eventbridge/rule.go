// SPDX-License-Identifier: Apache-2.0

package eventbridge

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/eventbridge"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// The limits of EventBridge (EventBridge user guide, quotas; API reference, PutRule and PutTargets).
const (
	maxRules         = 300
	maxTargets       = 5
	maxNameLength    = 64
	maxPatternLength = 2048
	maxPageSize      = 100
	maxRetries       = 185
	maxEventAge      = 86_400 // seconds
)

// checkRuleName refuses names that EventBridge refuses for rules and targets.
func checkRuleName(member, name string) error {
	if len(name) <= maxNameLength && regexp.MustCompile(`^[.\-_A-Za-z0-9]+$`).MatchString(name) {
		return nil
	}

	return newErrorf(
		codeValidation,
		"1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: Member must have length "+
			"less than or equal to 64 and satisfy regular expression pattern: [\\.\\-_A-Za-z0-9]+",
		name,
		member,
	)
}

// checkRule refuses the rules that EventBridge refuses, and by name what the region does not implement.
func (s *Service) checkRule(in *sdk.PutRuleInput) error {
	if err := s.checkBus(in.EventBusName); err != nil {
		return err
	}

	if err := checkRuleName("name", sdkshape.String(in.Name)); err != nil {
		return err
	}

	pattern := sdkshape.String(in.EventPattern)
	if pattern == "" && sdkshape.String(in.ScheduleExpression) == "" {
		return newErrorf(
			codeValidation,
			"Parameter(s) EventPattern or ScheduleExpression must be specified.",
		)
	}

	if len(pattern) > maxPatternLength {
		return newErrorf(
			codeLimitExceeded,
			"The event pattern is longer than %d characters.",
			maxPatternLength,
		)
	}

	state := sdkshape.String(in.State)
	if state != "" && state != sdk.RuleStateEnabled && state != sdk.RuleStateDisabled {
		return wire.NotImplemented("State " + state)
	}

	if err := checkSchedule(in); err != nil || pattern == "" {
		return err
	}

	_, err := parsePattern(pattern)

	return err
}

// putRule creates a rule, or replaces everything of it but its targets and tags.
func (s *Service) putRule(ctx context.Context, in *sdk.PutRuleInput) (*sdk.PutRuleOutput, error) {
	if err := s.checkRule(in); err != nil {
		return nil, err
	}

	name := *in.Name
	after := &rule{Tags: map[string]string{}, Targets: map[string]*sdk.Target{}}
	if existing := s.st.Rules[name]; existing != nil {
		*after = *existing
	} else if err := after.addTags(in.Tags); err != nil {
		return nil, err
	} else if len(s.st.Rules) >= maxRules {
		return nil, newErrorf(
			codeLimitExceeded,
			"The requested resource exceeds the maximum number allowed.",
		)
	} else {
		s.unseen.Track(name)
	}

	maps.Copy(after.Tags, wire.SystemTags(ctx))

	after.Description = sdkshape.String(in.Description)
	after.Pattern = sdkshape.String(in.EventPattern)
	after.setSchedule(sdkshape.String(in.ScheduleExpression), s.cfg.Now().UTC())
	after.Enabled = sdkshape.String(in.State) != sdk.RuleStateDisabled
	s.st.Rules[name] = after

	return &sdk.PutRuleOutput{RuleArn: new(s.ruleARN(name))}, nil
}

// toRule describes a rule for a response.
func (s *Service) toRule(name string) *sdk.Rule {
	r := s.st.Rules[name]
	out := &sdk.Rule{
		Arn:          new(s.ruleARN(name)),
		Name:         &name,
		EventBusName: new(defaultBus),
		State:        new(sdk.RuleStateEnabled),

		EventPattern:       sdkshape.StringOrNil(r.Pattern),
		ScheduleExpression: sdkshape.StringOrNil(r.Schedule),
	}
	if !r.Enabled {
		out.State = new(sdk.RuleStateDisabled)
	}

	if r.Description != "" {
		out.Description = &r.Description
	}

	return out
}

func (s *Service) describeRule(in *sdk.DescribeRuleInput) (*sdk.DescribeRuleOutput, error) {
	if _, err := s.findRule(in.EventBusName, in.Name); err != nil {
		return nil, err
	}

	r := s.toRule(*in.Name)

	return &sdk.DescribeRuleOutput{
		Arn:          r.Arn,
		CreatedBy:    new(s.cfg.Account),
		Description:  r.Description,
		EventBusName: r.EventBusName,
		EventPattern: r.EventPattern,
		Name:         r.Name,
		State:        r.State,

		ScheduleExpression: r.ScheduleExpression,
	}, nil
}

// pageOf returns a page of keys and the token of the next page.
func pageOf(keys []string, limit *int64, token *string) ([]string, *string, error) {
	size := int64(maxPageSize)
	if limit != nil {
		size = min(size, *limit)
	}

	return sdkshape.Paginate(keys, size, token, newErrorf(
		codeValidation,
		"NextToken is not valid.",
	))
}

func (s *Service) listRules(in *sdk.ListRulesInput) (*sdk.ListRulesOutput, error) {
	if err := s.checkBus(in.EventBusName); err != nil {
		return nil, err
	}

	names := slices.DeleteFunc(sdkshape.SortedKeys(s.st.Rules), func(name string) bool {
		return !strings.HasPrefix(name, sdkshape.String(in.NamePrefix))
	})
	page, next, err := pageOf(names, in.Limit, in.NextToken)
	out := &sdk.ListRulesOutput{Rules: []*sdk.Rule{}, NextToken: next}

	for _, name := range page {
		out.Rules = append(out.Rules, s.toRule(name))
	}

	return out, err
}

// deleteRule deletes a rule without targets. As in EventBridge, one that does not exist is no error.
func (s *Service) deleteRule(in *sdk.DeleteRuleInput) (*sdk.DeleteRuleOutput, error) {
	if err := s.checkBus(in.EventBusName); err != nil {
		return nil, err
	}

	name := sdkshape.String(in.Name)
	if r := s.st.Rules[name]; r != nil && len(r.Targets) > 0 {
		return nil, newErrorf(codeValidation, "Rule can't be deleted since it has targets.")
	}

	delete(s.st.Rules, name)

	return &sdk.DeleteRuleOutput{}, nil
}

// putTargets adds targets to a rule, or replaces those of the same ids.
func (s *Service) putTargets(in *sdk.PutTargetsInput) (*sdk.PutTargetsOutput, error) {
	r, err := s.findRule(in.EventBusName, in.Rule)
	if err != nil {
		return nil, err
	}

	seen := map[string]bool{}
	added := 0

	for _, t := range in.Targets {
		id := sdkshape.String(t.Id)
		if seen[id] {
			return nil, newErrorf(codeValidation, "Target id %s is not unique in the request.", id)
		}

		seen[id] = true
		if r.Targets[id] == nil {
			added++
		}

		if err := s.checkTarget(t); err != nil {
			return nil, err
		}
	}

	if len(r.Targets)+added > maxTargets {
		return nil, newErrorf(
			codeLimitExceeded,
			"The requested resource exceeds the maximum number allowed.",
		)
	}

	for _, t := range in.Targets {
		r.Targets[sdkshape.String(t.Id)] = sdkshape.CloneShape(t)
	}

	return &sdk.PutTargetsOutput{
		FailedEntryCount: new(int64(0)),
		FailedEntries:    []*sdk.PutTargetsResultEntry{},
	}, nil
}

// checkTarget refuses targets that EventBridge refuses, and by name what the region does not deliver to.
func (s *Service) checkTarget(t *sdk.Target) error {
	arn := sdkshape.String(t.Arn)
	if err := checkRuleName("targets.1.member.id", sdkshape.String(t.Id)); err != nil {
		return err
	}

	if strings.Count(arn, ":") < 5 || !strings.HasPrefix(arn, "arn:") {
		return newErrorf(
			codeValidation,
			"Parameter %s is not valid. Reason: Provided Arn is not in correct format.",
			arn,
		)
	}

	if !strings.HasPrefix(arn, "arn:aws:lambda:"+s.cfg.Region+":"+s.cfg.Account+":function:") {
		return wire.NotImplemented("a target that is no Lambda function of this account and region: " + arn)
	}

	if p := t.RetryPolicy; p != nil {
		retries := p.MaximumRetryAttempts
		age := p.MaximumEventAgeInSeconds
		if retries != nil && (*retries < 0 || *retries > maxRetries) || age != nil && *age > maxEventAge {
			return newErrorf(
				codeValidation,
				"A retry policy has 0 to %d attempts and an age of 60 to %d seconds.",
				maxRetries,
				maxEventAge,
			)
		}
	}

	return nil
}

func (s *Service) removeTargets(in *sdk.RemoveTargetsInput) (*sdk.RemoveTargetsOutput, error) {
	r, err := s.findRule(in.EventBusName, in.Rule)
	if err != nil {
		return nil, err
	}

	for _, id := range in.Ids {
		delete(r.Targets, sdkshape.String(id))
	}

	return &sdk.RemoveTargetsOutput{
		FailedEntryCount: new(int64(0)),
		FailedEntries:    []*sdk.RemoveTargetsResultEntry{},
	}, nil
}

func (s *Service) listTargetsByRule(in *sdk.ListTargetsByRuleInput) (*sdk.ListTargetsByRuleOutput, error) {
	r, err := s.findRule(in.EventBusName, in.Rule)
	if err != nil {
		return nil, err
	}

	page, next, err := pageOf(sdkshape.SortedKeys(r.Targets), in.Limit, in.NextToken)
	out := &sdk.ListTargetsByRuleOutput{Targets: []*sdk.Target{}, NextToken: next}

	for _, id := range page {
		out.Targets = append(out.Targets, r.Targets[id])
	}

	return out, err
}
