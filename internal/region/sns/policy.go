// SPDX-License-Identifier: Apache-2.0

package sns

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// The limits of the policy of a topic (SNS developer guide, "Amazon SNS API permissions").
const (
	maxPolicyBytes      = 30 << 10
	maxPolicyStatements = 100
)

// policyActions are the actions that the policy of a topic can name (SNS developer guide, "Amazon
// SNS API permissions"), in lower case.
func policyActions() []string {
	return []string{
		"sns:addpermission", "sns:deletetopic", "sns:getdataprotectionpolicy", "sns:gettopicattributes",
		"sns:listsubscriptionsbytopic", "sns:listtagsforresource", "sns:publish", "sns:putdataprotectionpolicy",
		"sns:receive", "sns:removepermission", "sns:settopicattributes", "sns:subscribe",
	}
}

// defaultPolicy returns the policy of a topic that was given none: everybody in the account may do
// everything with it.
func defaultPolicy(arn, account string) string {
	return fmt.Sprintf(`{"Version":"2008-10-17","Id":"__default_policy_ID","Statement":[{"Sid":"__default_statement_ID",`+
		`"Effect":"Allow","Principal":{"AWS":"*"},"Action":["SNS:GetTopicAttributes","SNS:SetTopicAttributes",`+
		`"SNS:AddPermission","SNS:RemovePermission","SNS:DeleteTopic","SNS:Subscribe",`+
		`"SNS:ListSubscriptionsByTopic","SNS:Publish"],"Resource":"%s",`+
		`"Condition":{"StringEquals":{"AWS:SourceOwner":"%s"}}}]}`, arn, account)
}

// policyOf returns the policy of a topic with a name.
func (s *Service) policyOf(name string, t *topic) string {
	if t.Policy != "" {
		return t.Policy
	}

	return defaultPolicy(s.topicARN(name), s.cfg.Account)
}

// checkPolicy refuses policies that SNS refuses. An empty one is the default.
func (s *Service) checkPolicy(arn, document string) error {
	if document == "" {
		return nil
	}

	if !json.Valid([]byte(document)) {
		return newError(codeInvalidParameter, "Invalid parameter: Policy failed to parse JSON")
	}

	p, err := authz.ParsePolicy(authz.ResourcePolicy, document)
	if err != nil {
		return newErrorf(codeInvalidParameter, "Invalid parameter: Policy Error: %s", authz.ServiceMessage(err))
	}

	if len(document) > maxPolicyBytes || len(p.Statements) > maxPolicyStatements {
		return newErrorf(
			codeInvalidParameter,
			"Invalid parameter: Policy Reason: it has at most %d bytes and %d statements",
			maxPolicyBytes,
			maxPolicyStatements,
		)
	}

	for _, st := range p.Statements {
		if err := s.checkStatement(arn, st); err != nil {
			return err
		}
	}

	return nil
}

// checkStatement refuses actions of other services, resources that are not the topic, and roles of
// the account that do not exist.
func (s *Service) checkStatement(arn string, st authz.Statement) error {
	for _, action := range slices.Concat(st.Action, st.NotAction) {
		pattern := strings.ToLower(action)
		if !slices.ContainsFunc(policyActions(), func(name string) bool { return authz.MatchPattern(pattern, name) }) {
			return newError(codeInvalidParameter, "Invalid parameter: Policy statement action out of service scope!")
		}
	}

	for _, resource := range slices.Concat(st.Resource, st.NotResource) {
		if !authz.MatchPattern(resource, arn) {
			return newError(
				codeInvalidParameter,
				"Invalid parameter: Policy Reason: the resource of a statement is not the topic",
			)
		}
	}

	for _, principal := range slices.Concat(st.Principal["AWS"], st.NotPrincipal["AWS"]) {
		_, name, isRole := strings.Cut(principal, ":iam::"+s.cfg.Account+":role/")
		if !isRole || s.cfg.Identities == nil {
			continue
		}

		_, last, _ := cutLast("/"+name, "/")
		if have, exists := s.cfg.Identities.RoleARN(last); !exists || have != principal {
			return newError(codeInvalidParameter, "Invalid parameter: Policy Error: PrincipalNotFound")
		}
	}

	return nil
}

// authorizeRequest decides whether the caller may do an operation with the topic that a request
// names: its own policies and the policy of the topic. One of them must allow it, and a Deny in
// either wins.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	tree, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return err
	}

	arn := s.requestedTopic(in)
	c := wire.AccessCheck{Action: "sns:" + op, Resource: arn, Context: map[string][]string{}}
	addConditions(c.Context, op, tree)
	if wire.CallerFrom(ctx).Account == s.cfg.Account {
		c.Context["aws:SourceOwner"] = []string{s.cfg.Account}
	}

	var policy string
	name := strings.TrimPrefix(arn, s.topicARN(""))
	s.store.View(func() {
		if t := s.st.Topics[name]; t != nil {
			policy = s.policyOf(name, t)
			sdkshape.AddResourceTags(c.Context, t.Tags)
		}
	})

	return s.evaluateAccess(ctx, policy, c)
}

// evaluateAccess decides a check by the caller's own policies and the policy of a topic; empty for
// none.
func (s *Service) evaluateAccess(ctx context.Context, policy string, c wire.AccessCheck) error {
	caller := wire.CallerFrom(ctx)
	if s.cfg.Identities == nil || caller.System || caller == (wire.Caller{}) {
		return wire.Authorize(ctx, c)
	}

	own := s.cfg.Identities.EvaluateIdentity(ctx, c)
	decision := authz.Decision{}
	if policy != "" && policyHas(c.Action) {
		p, err := authz.ParsePolicy(authz.ResourcePolicy, policy)
		if err != nil {
			return fmt.Errorf("read the policy of %s: %w", c.Resource, err)
		}

		decision = authz.EvaluateResource(p, s.cfg.Identities.BuildRequest(ctx, c), own)
	}

	switch {
	case decision.Denied:
		return denied(ctx, c, decision.Reason)
	case own.Denied:
		return denied(ctx, c, own.Reason)
	case own.Allowed, decision.Allowed:
		return nil
	}

	return denied(ctx, c, own.Reason)
}

// policyHas reports whether the policy of a topic can allow or deny an action.
func policyHas(action string) bool { return slices.Contains(policyActions(), strings.ToLower(action)) }

// denied is [wire.AccessDenied] with the code of SNS.
func denied(ctx context.Context, c wire.AccessCheck, reason string) error {
	c.Action = "SNS:" + strings.TrimPrefix(c.Action, "sns:")
	return newError(codeAuthorizationError, wire.AccessDenied(ctx, c, reason).Message)
}

// addConditions adds the condition keys of a request: its tags, and the protocol and the endpoint
// of a subscription.
func addConditions(into map[string][]string, op string, tree map[string]any) {
	sdkshape.AddRequestTags(into, tree["Tags"])
	keys, _ := tree["TagKeys"].([]any)

	for _, k := range keys {
		text, _ := k.(string)
		into["aws:TagKeys"] = append(into["aws:TagKeys"], text)
	}

	if op != "Subscribe" {
		return
	}

	for _, name := range []string{"Protocol", "Endpoint"} {
		if text, ok := tree[name].(string); ok {
			into["sns:"+name] = []string{text}
		}
	}
}
