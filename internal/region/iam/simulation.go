// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// policySource is a policy of a simulation with what the answer tells about it.
type policySource struct {
	id     string // the name of the policy
	policy authz.Policy
	spans  []authz.Span // of its statements
}

// newPolicySource returns the source of a document that was checked before it was stored. ok is false for any other.
func newPolicySource(id, document string) (s policySource, ok bool) {
	p, err := authz.ParsePolicy(authz.IdentityPolicy, document)
	if err != nil {
		return policySource{}, false
	}

	spans, err := authz.LocateStatements(document)

	return policySource{id: id, policy: p, spans: spans}, err == nil && len(spans) == len(p.Statements)
}

// simulation evaluates the policies of a user or a role.
type simulation struct {
	own      []policySource
	boundary []policySource // nil: no boundary
	context  map[string][]string
}

// policiesOf returns the policies of sources; nil for nil.
func policiesOf(sources []policySource) []authz.Policy {
	if sources == nil {
		return nil
	}

	out := make([]authz.Policy, 0, len(sources))
	for _, s := range sources {
		out = append(out, s.policy)
	}

	return out
}

// simulatePrincipalPolicy evaluates the policies of a user or a role for actions and resources.
func (s *IAM) simulatePrincipalPolicy(
	_ context.Context,
	in *iam.SimulatePrincipalPolicyInput,
) (*iam.SimulatePolicyResponse, error) {
	sim, err := s.newSimulation(in)
	if err != nil {
		return nil, err
	}

	var results []*iam.EvaluationResult
	for _, action := range in.ActionNames {
		if len(in.ResourceArns) == 0 {
			results = append(results, sim.evaluate(stringValue(action), "*"))
		}

		for _, resource := range in.ResourceArns {
			results = append(results, sim.evaluate(stringValue(action), stringValue(resource)))
		}
	}

	page, err := paginateIndexes(len(results), in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.SimulatePolicyResponse{IsTruncated: page.isTruncated, Marker: page.marker}
	for _, i := range page.indexes {
		out.EvaluationResults = append(out.EvaluationResults, results[i])
	}

	return out, nil
}

// newSimulation returns the simulation that a request asks for.
func (s *IAM) newSimulation(in *iam.SimulatePrincipalPolicyInput) (*simulation, error) {
	i, err := s.findIdentityByARN(*in.PolicySourceArn)
	if err != nil {
		return nil, err
	}

	sim := &simulation{own: s.st.policySources(i), context: map[string][]string{}}
	if i.Boundary != "" {
		sim.boundary = []policySource{}
		if p, err := s.st.findPolicy(i.Boundary); err == nil {
			sim.boundary = appendSource(sim.boundary, p.Name, p.defaultDocument())
		}
	}

	for n, document := range in.PolicyInputList {
		if _, err := authz.ParsePolicy(authz.IdentityPolicy, stringValue(document)); err != nil {
			return nil, newValidationError("the policy input is malformed: %v", err)
		}

		sim.own = appendSource(sim.own, "PolicyInputList."+strconv.Itoa(n+1), stringValue(document))
	}

	for _, e := range in.ContextEntries {
		for _, v := range e.ContextKeyValues {
			name := stringValue(e.ContextKeyName)
			sim.context[name] = append(sim.context[name], stringValue(v))
		}
	}

	return sim, nil
}

func appendSource(list []policySource, id, document string) []policySource {
	if s, ok := newPolicySource(id, document); ok {
		return append(list, s)
	}

	return list
}

// findIdentityByARN returns the role or the user with an ARN.
func (s *IAM) findIdentityByARN(arn string) (*identity, error) {
	for _, r := range s.st.Roles {
		if r.roleARN(s) == arn {
			return &r.identity, nil
		}
	}

	for _, u := range s.st.Users {
		if u.userARN(s) == arn {
			return &u.identity, nil
		}
	}

	return nil, newNotFoundError("The principal %s cannot be found.", arn)
}

// policySources returns the inline and attached policies of an identity.
func (st *serviceState) policySources(i *identity) []policySource {
	var out []policySource
	st.walkDocuments(i, func(name, document string) { out = appendSource(out, name, document) })

	return out
}

// evaluate simulates an action on a resource; "*" is any.
func (sim *simulation) evaluate(action, resource string) *iam.EvaluationResult {
	r := authz.Request{Action: action, Resource: resource, Context: sim.context}
	d := authz.EvaluateWithin(policiesOf(sim.own), policiesOf(sim.boundary), r)
	decision := new(decisionName(d))
	matched := sim.matchedStatements(d, r)
	missing := sim.missingContextValues()
	out := &iam.EvaluationResult{
		EvalActionName:       &action,
		EvalDecision:         decision,
		EvalDecisionDetails:  map[string]*string{},
		EvalResourceName:     &resource,
		MatchedStatements:    matched,
		MissingContextValues: missing,
	}

	var boundary *iam.PermissionsBoundaryDecisionDetail
	if sim.boundary != nil {
		boundary = &iam.PermissionsBoundaryDecisionDetail{
			AllowedByPermissionsBoundary: new(authz.Evaluate(policiesOf(sim.boundary), r).Allowed),
		}
		out.PermissionsBoundaryDecisionDetail = boundary
	}

	if resource != "*" {
		out.MissingContextValues = []*string{}
		out.ResourceSpecificResults = []*iam.ResourceSpecificResult{{
			EvalResourceDecision:              decision,
			EvalResourceName:                  &resource,
			MatchedStatements:                 matched,
			MissingContextValues:              missing,
			PermissionsBoundaryDecisionDetail: boundary,
		}}
	}

	return out
}

// matchedStatements returns the statements that determine a decision: those that allow the request, or those that deny
// it. No statement determines that nothing allows it.
func (sim *simulation) matchedStatements(d authz.Decision, r authz.Request) []*iam.Statement {
	out := []*iam.Statement{}
	add := func(sources []policySource, allow bool) {
		for _, m := range authz.MatchingStatements(policiesOf(sources), allow, r) {
			out = append(out, sources[m.Policy].describe(m.Statement))
		}
	}

	switch {
	case d.Allowed:
		add(sim.own, true)
	case d.Denied:
		add(slices.Concat(sim.own, sim.boundary), false)
	}

	return out
}

// describe returns a statement of a policy as the simulator does.
func (s policySource) describe(statement int) *iam.Statement {
	position := func(p authz.Position) *iam.Position {
		return &iam.Position{Line: new(int64(p.Line)), Column: new(int64(p.Column))}
	}

	return &iam.Statement{
		SourcePolicyId:   &s.id,
		SourcePolicyType: new("IAM Policy"),
		StartPosition:    position(s.spans[statement].Start),
		EndPosition:      position(s.spans[statement].End),
	}
}

// missingContextValues returns the condition keys of the policies that the request has no values for.
func (sim *simulation) missingContextValues() []*string {
	given := map[string]bool{}
	for name := range maps.Keys(sim.context) {
		given[strings.ToLower(name)] = true
	}

	out := []*string{}
	for _, name := range authz.ConditionKeys(policiesOf(slices.Concat(sim.own, sim.boundary))) {
		if !given[name] {
			out = append(out, &name)
		}
	}

	return out
}

// decisionName returns a decision as simulations name it.
func decisionName(d authz.Decision) string {
	switch {
	case d.Allowed:
		return iam.PolicyEvaluationDecisionTypeAllowed
	case d.Denied:
		return iam.PolicyEvaluationDecisionTypeExplicitDeny
	}

	return iam.PolicyEvaluationDecisionTypeImplicitDeny
}
