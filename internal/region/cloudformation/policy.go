// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/record"
)

// oneOrMany is a JSON string or a list of them.
type oneOrMany []string

// UnmarshalJSON reads either.
func (o *oneOrMany) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*o = oneOrMany{one}
		return nil
	}
	var many []string
	if err := json.Unmarshal(b, &many); err != nil {
		return fmt.Errorf("read a list of texts: %w", err)
	}
	*o = many
	return nil
}

// stackPolicy says which updates a stack allows.
type stackPolicy struct{ Statement []policyStatement }

type policyStatement struct {
	Effect                                   string
	Action, NotAction, Resource, NotResource oneOrMany
	Principal                                any
	Condition                                map[string]map[string]oneOrMany
}

// about tells whether a statement is about an action on a resource of a type.
func (st policyStatement) about(action, resource, kind string) bool {
	return covers(st.Action, st.NotAction, action) && conditionHolds(st.Condition, kind) &&
		(covers(st.Resource, st.NotResource, resource) || len(st.Resource)+len(st.NotResource) == 0)
}

// covers tells whether text is among patterns, or outside of those that are given as exceptions.
func covers(patterns, but []string, text string) bool {
	return anyLike(patterns, text) || len(but) > 0 && !anyLike(but, text)
}

func parsePolicy(body string) (stackPolicy, error) {
	var p stackPolicy
	if len(body) > 16384 {
		return p, invalid("Error validating stack policy: it is longer than 16384 bytes")
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		return p, invalid("Error validating stack policy: Unable to parse stack policy: %v", err)
	}
	for _, st := range p.Statement {
		switch {
		case st.Effect != "Allow" && st.Effect != "Deny":
			return p, invalid("Error validating stack policy: Invalid effect %q", st.Effect)
		case len(st.Action)+len(st.NotAction) == 0, len(st.Resource)+len(st.NotResource) == 0 && st.Condition == nil:
			return p, invalid("Error validating stack policy: a statement needs Action and Resource")
		case st.Principal != "*" && at(st.Principal, "AWS") != "*":
			return p, invalid("Error validating stack policy: Principal must be *")
		}
	}
	return p, nil
}

func anyLike(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return authz.Like(p, text) })
}

// policyDenies says why the stack policy does not let an update do an action on a resource; empty if it does. The
// caller is inside the book.
func (s *Service) policyDenies(sd side, r *resource, action string) string {
	body := sd.st.Policy
	if sd.op.DuringPolicy != "" {
		body = sd.op.DuringPolicy
	}
	if body == "" || sd.rollback || sd.op.Kind != opUpdate {
		return ""
	}
	p, err := parsePolicy(body)
	if err != nil {
		return err.Error()
	}
	allowed, resource := false, "LogicalResourceId/"+r.Logical
	for i, st := range p.Statement {
		switch {
		case !st.about(action, resource, r.Type):
		case st.Effect == "Deny":
			return fmt.Sprintf("Action denied by stack policy: Statement [#%d] does not allow [%s] for resource [%s]", i+1, action, resource)
		default:
			allowed = true
		}
	}
	if !allowed {
		return fmt.Sprintf("Action denied by stack policy: no statement allows [%s] for resource [%s]", action, resource)
	}
	return ""
}

// conditionHolds evaluates a statement's condition, which can only be about the resource's type.
func conditionHolds(c map[string]map[string]oneOrMany, kind string) bool {
	for operator, keys := range c {
		for key, values := range keys {
			if key != "ResourceType" {
				return false
			}
			same := slices.Contains(values, kind)
			if strings.HasSuffix(operator, "Like") {
				same = anyLike(values, kind)
			}
			if same == strings.Contains(operator, "Not") {
				return false
			}
		}
	}
	return true
}

func (s *Service) setPolicy(in *sdk.SetStackPolicyInput) (*sdk.SetStackPolicyOutput, error) {
	st, err := s.find(record.Str(in.StackName))
	if err != nil {
		return nil, err
	}
	if in.StackPolicyBody == nil {
		return nil, invalid("Either StackPolicyBody or StackPolicyURL must be specified.")
	}
	if _, err := parsePolicy(*in.StackPolicyBody); err != nil {
		return nil, err
	}
	st.Policy = *in.StackPolicyBody
	return &sdk.SetStackPolicyOutput{}, nil
}

func (s *Service) getPolicy(in *sdk.GetStackPolicyInput) (*sdk.GetStackPolicyOutput, error) {
	st, err := s.find(record.Str(in.StackName))
	if err != nil {
		return nil, err
	}
	if st.Policy == "" {
		return &sdk.GetStackPolicyOutput{}, nil
	}
	return &sdk.GetStackPolicyOutput{StackPolicyBody: new(st.Policy)}, nil
}
