// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"slices"
	"strings"
)

// Principal is who asks, for policies of resources.
type Principal struct {
	Account string
	ARN     string // of a user, or an assumed role: arn:aws:sts::ACCOUNT:assumed-role/NAME/SESSION
	RoleARN string // of the role that is assumed; empty for others
	Service string // such as ec2.amazonaws.com; then the others are empty
}

// Request is one action on one resource.
type Request struct {
	Action    string
	Resource  string              // an ARN, or "*"
	Context   map[string][]string // condition keys; names do not depend on case
	Principal Principal           // matched only by statements that have a principal
}

// Decision is an answer. Reason is in IAM's words, to stand behind "because".
type Decision struct {
	Allowed bool
	Denied  bool // by a Deny, which no Allow elsewhere outweighs
	Reason  string
}

// Decide evaluates policies: a Deny that matches wins, then an Allow that matches, else nothing is allowed.
func Decide(policies []Policy, r Request) Decision {
	c := lowerCaseKeys(r.Context)
	allowed := false
	for _, p := range policies {
		for _, s := range p.Statements {
			if !s.matchesRequest(p.Version, r, c) {
				continue
			}

			if !s.Allow {
				return Decision{Denied: true, Reason: "of an explicit deny in a policy" + formatSid(s)}
			}

			allowed = true
		}
	}

	if !allowed {
		return Decision{Reason: "no policy allows the " + r.Action + " action"}
	}

	return Decision{Allowed: true, Reason: "a policy allows it"}
}

func formatSid(s Statement) string {
	if s.Sid == "" {
		return ""
	}

	return " (statement " + s.Sid + ")"
}

// DelegatesToAccount tells whether a statement of p that allows r names the account itself as principal, which in a key's
// policy leaves the decision to the account's IAM policies.
func DelegatesToAccount(p Policy, account string, r Request) bool {
	r.Principal = Principal{Account: account, ARN: "arn:aws:iam::" + account + ":root"}
	return Decide([]Policy{p}, r).Allowed
}

func lowerCaseKeys(m map[string][]string) map[string][]string {
	out := make(map[string][]string, len(m))
	for k, v := range m {
		out[strings.ToLower(k)] = v
	}

	return out
}

func (s Statement) matchesRequest(version string, r Request, c map[string][]string) bool {
	vars := policyVariables{contextValues: c, enabled: version == "2012-10-17"}
	if !s.matchesPrincipal(r.Principal) || !s.matchesActionAndResource(vars, r) {
		return false
	}

	for _, condition := range s.Conditions {
		if !vars.evaluateCondition(condition) {
			return false
		}
	}

	return true
}

// matchesPrincipal tells whether a statement is about who asks. One of an identity's policy always is.
func (s Statement) matchesPrincipal(who Principal) bool {
	if s.Principal != nil && !s.Principal.containsPrincipal(who, s.Allow) {
		return false
	}

	return s.NotPrincipal == nil || !s.NotPrincipal.containsPrincipal(who, false)
}

// matchesActionAndResource tells whether a statement is about the action and the resource.
func (s Statement) matchesActionAndResource(vars policyVariables, r Request) bool {
	if s.Action != nil && !matchesAction(s.Action, r.Action) ||
		s.NotAction != nil && matchesAction(s.NotAction, r.Action) {
		return false
	}

	if s.Resource != nil && !vars.matchesResource(s.Resource, r.Resource) {
		return false
	}

	return s.NotResource == nil || !vars.matchesResource(s.NotResource, r.Resource)
}

func matchesAction(patterns []string, action string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return newPattern(strings.ToLower(p)).match(strings.ToLower(action))
	})
}

func (v policyVariables) matchesResource(patterns []string, resource string) bool {
	if resource == "" {
		resource = "*"
	}

	return slices.ContainsFunc(patterns, func(text string) bool {
		p, ok := v.expandPattern(text)
		return ok && p.match(resource)
	})
}

// containsPrincipal tells whether who is among the principals. Where the account itself is named, an Allow includes only its
// root, since it leaves the rest to the account's own policies (see [DelegatesToAccount]); a Deny includes everybody in it.
func (p Principals) containsPrincipal(who Principal, allow bool) bool { //revive:disable-line:flag-parameter
	if who.Service != "" {
		return slices.Contains(p["Service"], who.Service) || slices.Contains(p["AWS"], "*")
	}

	root := "arn:aws:iam::" + who.Account + ":root"
	for _, name := range p["AWS"] {
		switch name {
		case "*":
			return true
		case who.Account, root:
			if who.Account != "" && (!allow || who.ARN == root) {
				return true
			}

		case who.ARN, who.RoleARN:
			if name != "" {
				return true
			}
		}
	}

	return false
}
