// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// stringOrList is a JSON string or a list of strings.
type stringOrList []string

// UnmarshalJSON implements json.Unmarshaler.
func (o *stringOrList) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*o = stringOrList{one}
		return nil
	}

	var many []string
	if err := json.Unmarshal(b, &many); err != nil {
		return fmt.Errorf("read a list of texts: %w", err)
	}

	*o = many

	return nil
}

// stackPolicy is a stack policy: the updates that a stack allows.
type stackPolicy struct{ Statement []policyStatement }

type policyStatement struct {
	Effect                                   string
	Action, NotAction, Resource, NotResource stringOrList
	Principal                                any
	Condition                                map[string]map[string]stringOrList
}

// appliesTo reports whether a statement applies to an action on a resource of a type.
func (st policyStatement) appliesTo(action, resource, kind string) bool {
	return matchesPatterns(st.Action, st.NotAction, action) && conditionHolds(st.Condition, kind) &&
		(matchesPatterns(st.Resource, st.NotResource, resource) || len(st.Resource)+len(st.NotResource) == 0)
}

// matchesPatterns reports whether text matches one of the patterns, or none of the patterns of a Not element.
func matchesPatterns(patterns, but []string, text string) bool {
	return matchesAny(patterns, text) || len(but) > 0 && !matchesAny(but, text)
}

func parseStackPolicy(body string) (stackPolicy, error) {
	var p stackPolicy
	if len(body) > 16384 {
		return p, template.ValidationError("Error validating stack policy: it is longer than 16384 bytes")
	}

	if err := json.Unmarshal([]byte(body), &p); err != nil {
		return p, template.ValidationError(
			"Error validating stack policy: Unable to parse stack policy: %v",
			err,
		)
	}

	for _, st := range p.Statement {
		switch {
		case st.Effect != "Allow" && st.Effect != "Deny":
			return p, template.ValidationError("Error validating stack policy: Invalid effect %q", st.Effect)
		case len(st.Action)+len(st.NotAction) == 0,
			len(st.Resource)+len(st.NotResource) == 0 && st.Condition == nil:
			return p, template.ValidationError("Error validating stack policy: a statement needs Action and Resource")
		case st.Principal != "*" && template.ValueAt(st.Principal, "AWS") != "*":
			return p, template.ValidationError("Error validating stack policy: Principal must be *")
		}
	}

	return p, nil
}

func matchesAny(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return authz.MatchPattern(p, text) })
}

// deniedByPolicy returns why the stack policy denies an action on a resource in an update; empty if it allows
// the action. The caller holds the store's lock.
func deniedByPolicy(sd stackTransition, r *resource, action string) string {
	body := sd.stack.Policy
	if sd.operation.DuringPolicy != "" {
		body = sd.operation.DuringPolicy
	}

	if body == "" || sd.rollback || sd.operation.Kind != opUpdate {
		return ""
	}

	p, err := parseStackPolicy(body)
	if err != nil {
		return err.Error()
	}

	allowed := false
	resource := "LogicalResourceId/" + r.Logical

	for i, st := range p.Statement {
		switch {
		case !st.appliesTo(action, resource, r.Type):
		case st.Effect == "Deny":
			return fmt.Sprintf(
				"Action denied by stack policy: Statement [#%d] does not allow [%s] for resource [%s]",
				i+1,
				action,
				resource,
			)

		default:
			allowed = true
		}
	}

	if !allowed {
		return fmt.Sprintf(
			"Action denied by stack policy: no statement allows [%s] for resource [%s]",
			action,
			resource,
		)
	}

	return ""
}

// conditionHolds evaluates a statement's condition, which can only be about the resource's type.
func conditionHolds(c map[string]map[string]stringOrList, kind string) bool {
	for operator, keys := range c {
		for key, values := range keys {
			if key != "ResourceType" {
				return false
			}

			same := slices.Contains(values, kind)
			if strings.HasSuffix(operator, "Like") {
				same = matchesAny(values, kind)
			}

			if same == strings.Contains(operator, "Not") {
				return false
			}
		}
	}

	return true
}

// stackPolicyHandlers serves stack policies.
type stackPolicyHandlers struct{ *Service }

func (s stackPolicyHandlers) ops() []wire.Operation {
	return []wire.Operation{
		state.WriteOperation(s.store, "SetStackPolicy", s.setStackPolicy),
		state.ReadOperation(s.store, "GetStackPolicy", s.getStackPolicy),
	}
}

func (s stackPolicyHandlers) setStackPolicy(in *sdk.SetStackPolicyInput) (*sdk.SetStackPolicyOutput, error) {
	st, err := s.state.findStack(sdkshape.String(in.StackName))
	if err != nil {
		return nil, err
	}

	if in.StackPolicyBody == nil {
		return nil, template.ValidationError("Either StackPolicyBody or StackPolicyURL must be specified.")
	}

	if _, err := parseStackPolicy(*in.StackPolicyBody); err != nil {
		return nil, err
	}

	st.Policy = *in.StackPolicyBody

	return &sdk.SetStackPolicyOutput{}, nil
}

func (s stackPolicyHandlers) getStackPolicy(in *sdk.GetStackPolicyInput) (*sdk.GetStackPolicyOutput, error) {
	st, err := s.state.findStack(sdkshape.String(in.StackName))
	if err != nil {
		return nil, err
	}

	if st.Policy == "" {
		return &sdk.GetStackPolicyOutput{}, nil
	}

	return &sdk.GetStackPolicyOutput{StackPolicyBody: new(st.Policy)}, nil
}
