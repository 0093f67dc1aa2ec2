// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"slices"
	"strings"
)

// Principal is the caller of a request.
type Principal struct {
	Account string // 12 digits
	ARN     string // of a user, or of an assumed role: arn:aws:sts::ACCOUNT:assumed-role/NAME/SESSION
	RoleARN string // of the role that is assumed; empty for other callers
	Bounded bool   // the user or role has a permissions boundary
	Service string // such as ec2.amazonaws.com; the other fields are then empty
	// Federated is the ARN of the identity provider whose token the caller has; the other fields are then empty.
	Federated string
}

// Request is one action on one resource.
type Request struct {
	Action    string              // such as ec2:RunInstances
	Resource  string              // an ARN, or "*"
	Context   map[string][]string // values of condition keys; the case of the keys does not matter
	Principal Principal           // the caller; only statements with a principal use it
}

// Decision is the result of an evaluation. At most one of Allowed and Denied is true.
type Decision struct {
	Allowed bool
	Denied  bool   // explicitly, by a Deny: no other policy can allow the request
	Reason  string // ends an error message, in IAM's words: "because …" or "with …"
	// OutsideLimit is true if the caller's permissions boundary or session policies do not allow the request: see [EvaluateResource].
	OutsideLimit bool
}

// Evaluate evaluates policies for a request. A matching Deny wins over a matching Allow. A request without
// either is not allowed.
func Evaluate(policies []Policy, r Request) Decision {
	c := lowerCaseKeys(r.Context)
	allowed := false
	for _, p := range policies {
		for _, s := range p.Statements {
			if !s.matchesRequest(p.Version, r, c) {
				continue
			}

			if !s.Allow {
				return Decision{Denied: true, Reason: denialIn("an " + identityBased)}
			}

			allowed = true
		}
	}

	if !allowed {
		return Decision{Reason: absenceOf(identityBased, r.Action)}
	}

	return Decision{Allowed: true, Reason: "because a policy allows it"}
}

// The kinds of policies in messages.
const (
	identityBased = "identity-based policy"
	resourceBased = "resource-based policy"
)

// denialIn and absenceOf return the reasons of IAM's messages: see "Troubleshoot access denied error messages" in the IAM user
// guide.
func denialIn(policy string) string { return "with an explicit deny in " + policy }

func absenceOf(policy, action string) string {
	return "because no " + policy + " allows the " + action + " action"
}

// EvaluateWithin evaluates the policies of an identity that has a permissions boundary: both must allow the request,
// and a Deny in either wins. A nil boundary is none.
func EvaluateWithin(policies, boundary []Policy, r Request) Decision {
	return EvaluateSession(policies, boundary, nil, r)
}

// EvaluateSession is [EvaluateWithin] for the session of a role that was created with session policies: these limit what the role's own
// policies allow, and give nothing by themselves. A session without such policies has what the role has.
func EvaluateSession(policies, boundary, session []Policy, r Request) Decision {
	out := Evaluate(policies, r)
	if boundary != nil {
		out = out.limitBy(Evaluate(boundary, r), "permissions boundary", r.Action)
	}

	if len(session) > 0 {
		out = out.limitBy(Evaluate(session, r), "session policy", r.Action)
	}

	return out
}

// limitBy returns the decision d of an identity's policies within the decision of a boundary or of session policies, whose name
// in messages is policy.
func (d Decision) limitBy(limit Decision, policy, action string) Decision {
	switch {
	case d.Denied, limit.Allowed:
		return d
	case limit.Denied:
		return Decision{Denied: true, Reason: denialIn("a " + policy)}
	}

	return Decision{OutsideLimit: true, Reason: absenceOf(policy, action)}
}

// EvaluateResource evaluates the policy of a resource, such as a bucket, for a caller whose own policies decided own. Where the boundary of a
// role or the policies of its session do not allow the request, a policy that names the role, or everyone, does not either; one that names
// the session does. A user who is named is not limited by a boundary.
func EvaluateResource(p Policy, r Request, own Decision) Decision {
	d := Evaluate([]Policy{p}, r)

	switch {
	case d.Denied:
		return Decision{Denied: true, Reason: denialIn("a " + resourceBased)}
	case !d.Allowed:
		return Decision{Reason: absenceOf(resourceBased, r.Action)}
	case !own.OutsideLimit:
		return d
	}

	named := Policy{Version: p.Version}
	for _, s := range p.Statements {
		if s.Principal != nil && slices.Contains(s.Principal["AWS"], r.Principal.ARN) {
			named.Statements = append(named.Statements, s)
		}
	}

	if d := Evaluate([]Policy{named}, r); d.Allowed {
		return d
	}

	return own
}

// DelegatesToAccount reports whether p allows r for the account itself as principal. In a key policy or a
// trust policy, this means that the IAM policies of the account decide.
func DelegatesToAccount(p Policy, account string, r Request) bool {
	r.Principal = Principal{Account: account, ARN: rootARN(account)}
	return Evaluate([]Policy{p}, r).Allowed
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

// matchesPrincipal reports whether a statement applies to a caller. A statement of an identity's policy
// always does.
//
// Where an Allow names the account, it applies to the account's root only and leaves the other callers to the
// account's own policies (see [DelegatesToAccount]). Where a Deny names the account, it applies to every caller of
// the account.
func (s Statement) matchesPrincipal(caller Principal) bool {
	switch {
	case s.Principal != nil && s.Allow && !s.Principal.containsCaller(caller):
		return false
	case s.Principal != nil && !s.Allow && !s.Principal.containsCallerOrAccount(caller):
		return false
	}

	return s.NotPrincipal == nil || !s.NotPrincipal.exempts(caller)
}

// exempts reports whether the principals of a NotPrincipal leave a caller out. AWS asks for the account first and then for
// the user or role, so both must be named; the session of a role is left out if its role is. A caller with a permissions
// boundary is never left out.
func (p Principals) exempts(caller Principal) bool {
	names := p["AWS"]

	switch {
	case caller.Bounded:
		return false
	case slices.Contains(names, "*"):
		return true
	case caller.Federated != "":
		return slices.Contains(p["Federated"], caller.Federated)
	case caller.Service != "":
		return slices.Contains(p["Service"], caller.Service)
	case caller.Account == "":
		return false // nobody can name an anonymous caller
	}

	root := rootARN(caller.Account)
	if !slices.Contains(names, root) && !slices.Contains(names, caller.Account) {
		return false
	}

	if caller.RoleARN != "" {
		return slices.Contains(names, caller.RoleARN)
	}

	return caller.ARN == root || slices.Contains(names, caller.ARN)
}

// matchesActionAndResource reports whether a statement applies to the action and the resource of a request.
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

// containsCaller reports whether the principals contain a caller: "*", the caller's ARN, the ARN of its role
// or its service. An account that is named contains only its root.
//
// A caller with the token of an identity provider is contained only if the provider is named: the region does not
// let "*" stand for everybody who has a token of any provider.
func (p Principals) containsCaller(caller Principal) bool {
	names := p["AWS"]
	if caller.Federated != "" {
		return slices.Contains(p["Federated"], caller.Federated)
	}

	if slices.Contains(names, "*") {
		return true
	}

	if caller.Service != "" {
		return slices.Contains(p["Service"], caller.Service)
	}

	root := rootARN(caller.Account)

	return slices.ContainsFunc(names, func(name string) bool {
		switch name {
		case "":
			return false
		case caller.Account, root:
			return caller.Account != "" && caller.ARN == root
		}

		return name == caller.ARN || name == caller.RoleARN
	})
}

// containsCallerOrAccount reports whether the principals contain a caller or its whole account.
func (p Principals) containsCallerOrAccount(caller Principal) bool {
	if p.containsCaller(caller) {
		return true
	}

	names := p["AWS"]
	if caller.Federated != "" {
		return slices.Contains(names, "*")
	}

	return caller.Service == "" && caller.Account != "" &&
		(slices.Contains(names, caller.Account) || slices.Contains(names, rootARN(caller.Account)))
}

// rootARN returns the ARN of an account's root, which in policies also stands for the account.
func rootARN(account string) string { return "arn:aws:iam::" + account + ":root" }
