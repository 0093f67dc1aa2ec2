// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Authorize implements [wire.Authorizer]: the caller's own policies must allow the action.
func (s *IAM) Authorize(ctx context.Context, c wire.Check) error {
	if d := s.EvaluateIdentity(ctx, c); !d.Allowed {
		return wire.AccessDenied(ctx, c, d.Reason)
	}

	return nil
}

// EvaluateIdentity evaluates the policies of the caller in ctx. Services with policies of their own join its answer with theirs.
func (s *IAM) EvaluateIdentity(ctx context.Context, c wire.Check) authz.Decision {
	caller := wire.CallerFrom(ctx)
	if caller.IsUnrestricted() {
		return authz.Decision{Allowed: true, Reason: "the account's root may do everything"}
	}

	r := s.BuildRequest(ctx, c)
	d := s.evaluateCaller(caller, c, r)
	if s.cfg.Trace != nil {
		s.cfg.Trace(r, d)
	}

	return d
}

func (s *IAM) evaluateCaller(caller wire.Caller, c wire.Check, r authz.Request) authz.Decision {
	own, narrowing := s.callerPolicies(caller)
	d := authz.Decide(own, r)
	if !d.Allowed || len(narrowing) == 0 {
		return d
	}

	if d = authz.Decide(narrowing, r); !d.Allowed {
		d.Reason = "no session policy allows the " + c.Action + " action"
	}

	return d
}

// CallerPrincipal is the caller in ctx as policies of resources name it.
func (s *IAM) CallerPrincipal(ctx context.Context) authz.Principal {
	caller := wire.CallerFrom(ctx)
	p := authz.Principal{Account: caller.Account, ARN: caller.ARN}
	if caller.Role != "" {
		p.RoleARN, _ = s.RoleARN(caller.Role)
	}

	return p
}

// BuildRequest is a check with every condition key that IAM knows of the caller and the request.
func (s *IAM) BuildRequest(ctx context.Context, c wire.Check) authz.Request {
	keys := wire.ConditionKeys(ctx, c)
	service, _, _ := strings.Cut(c.Action, ":")
	for k, v := range c.Context {
		if name, ok := strings.CutPrefix(k, "aws:ResourceTag/"); ok {
			keys[service+":ResourceTag/"+name] = v
		}
	}

	now := s.cfg.Now().UTC()
	keys["aws:CurrentTime"] = []string{now.Format(time.RFC3339)}
	keys["aws:EpochTime"] = []string{strconv.FormatInt(now.Unix(), 10)}
	s.addCallerKeys(wire.CallerFrom(ctx), keys)

	return authz.Request{
		Action:    c.Action,
		Resource:  c.Resource,
		Context:   keys,
		Principal: s.CallerPrincipal(ctx),
	}
}

func (s *IAM) addCallerKeys(caller wire.Caller, keys map[string][]string) {
	if caller.IsAnonymous() {
		keys["aws:PrincipalType"] = []string{"Anonymous"}
		return
	}

	keys["aws:PrincipalAccount"] = []string{caller.Account}
	keys["aws:userid"] = []string{caller.UserID}
	keys["aws:PrincipalArn"] = []string{caller.ARN}
	s.store.Lock()
	defer s.store.Unlock()
	var tags map[string]string

	switch {
	case caller.Root:
		keys["aws:PrincipalType"] = []string{"Account"}
	case caller.Role != "":
		keys["aws:PrincipalType"] = []string{"AssumedRole"}
		if r, ok := s.st.Roles[caller.Role]; ok {
			keys["aws:PrincipalArn"] = []string{r.roleARN(s)}
			tags = r.Tags
		}

	default:
		keys["aws:PrincipalType"] = []string{"User"}
		if u := s.findUserByARN(caller.ARN); u != nil {
			keys["aws:username"] = []string{u.Name}
			tags = u.Tags
		}
	}

	for k, v := range tags {
		keys["aws:PrincipalTag/"+k] = []string{v}
	}
}

func (s *IAM) findUserByARN(arn string) *user {
	return s.st.Users[arn[strings.LastIndex(arn, "/")+1:]]
}

// callerPolicies are a caller's own policies, and those that its session was narrowed by. A session outlives its role,
// but not with any right.
func (s *IAM) callerPolicies(caller wire.Caller) (own, narrowing []authz.Policy) {
	s.store.Lock()
	defer s.store.Unlock()
	if caller.Role == "" {
		if u := s.findUserByARN(caller.ARN); u != nil {
			own = s.parseIdentityPolicies(&u.identity)
		}

		return own, nil
	}

	v := s.st.Sessions[caller.AccessKeyID]
	r := s.st.Roles[caller.Role]
	if v == nil || r == nil || r.ID != v.RoleID {
		return nil, nil
	}

	for _, document := range v.Policies {
		narrowing = appendPolicy(narrowing, document)
	}

	return s.parseIdentityPolicies(&r.identity), narrowing
}

// parseIdentityPolicies are all policies of an identity.
func (s *IAM) parseIdentityPolicies(i *identity) []authz.Policy {
	var out []authz.Policy
	for _, document := range i.Inline {
		out = appendPolicy(out, document)
	}

	for _, arn := range i.Attached {
		if p, err := s.findPolicy(arn); err == nil {
			out = appendPolicy(out, p.defaultDocument())
		}
	}

	return out
}

// appendPolicy adds a document that was checked when it was stored.
func appendPolicy(list []authz.Policy, document string) []authz.Policy {
	if p, err := authz.Parse(authz.Identity, document); err == nil {
		return append(list, p)
	}

	return list
}

// AssumeRole makes credentials of a role for the caller in ctx, if the role's trust policy lets it. Where the trust
// policy names the account, the caller's own policies must allow it too. life is in seconds; 0 means an hour.
// policies are documents that narrow the session.
func (s *IAM) AssumeRole(
	ctx context.Context,
	roleARN, sessionName string,
	life int64,
	policies []string,
) (Credentials, wire.Caller, error) { //revive:disable-line:function-result-limit
	check := wire.Check{Action: "sts:AssumeRole", Resource: roleARN}
	none := Credentials{}
	name, trust, longest, ok := s.findTrustPolicy(roleARN)
	if !ok {
		return none, wire.Caller{}, wire.AccessDenied(
			ctx,
			check,
			"the role does not exist or does not trust the caller",
		)
	}

	caller := wire.CallerFrom(ctx)
	if caller.Root {
		return none, wire.Caller{}, wire.AccessDenied(ctx, check, "roles may not be assumed by root accounts")
	}

	r := s.BuildRequest(ctx, check)
	own := s.EvaluateIdentity(ctx, check)
	byTrust := authz.Decide([]authz.Policy{trust}, r)
	delegated := authz.DelegatesToAccount(trust, s.cfg.Account, r)
	if own.Denied || byTrust.Denied || !byTrust.Allowed && (!delegated || !own.Allowed) {
		return none, wire.Caller{}, wire.AccessDenied(
			ctx,
			check,
			"the role's trust policy or the caller's policies do not allow it",
		)
	}

	if caller.Role != "" {
		longest = min(longest, defaultSessionSeconds) // chained roles live an hour at most
	}

	duration, err := resolveSessionDuration(life, longest, policies)
	if err != nil {
		return none, wire.Caller{}, err
	}

	return s.issueCredentials(name, sessionName, duration, policies)
}

// resolveSessionDuration checks what a caller asks of a session, and returns its life.
func resolveSessionDuration(life, longest int64, policies []string) (time.Duration, error) {
	if life == 0 {
		life = defaultSessionSeconds
	}

	if life > longest {
		return 0, wire.Errorf(
			"ValidationError",
			"The requested DurationSeconds exceeds the MaxSessionDuration set for this role.",
		)
	}

	for _, document := range policies {
		if err := validateDocument(authz.Identity, document, maxTrustPolicyBytes); err != nil {
			return 0, err
		}
	}

	return time.Duration(life) * time.Second, nil
}

// findTrustPolicy finds a role by its ARN, with its trust policy and its longest session in seconds.
func (s *IAM) findTrustPolicy(
	arn string,
) (name string, trust authz.Policy, longest int64, ok bool) { //revive:disable-line:function-result-limit
	s.store.Lock()
	defer s.store.Unlock()
	r := s.st.Roles[arn[strings.LastIndex(arn, "/")+1:]]
	if r == nil || r.roleARN(s) != arn {
		return "", authz.Policy{}, 0, false
	}

	trust, err := authz.Parse(authz.TrustPolicy, r.Trust)

	return r.Name, trust, r.MaxSession, err == nil
}

// TrustsService tells whether a role's trust policy lets a service such as ec2.amazonaws.com assume it.
func (s *IAM) TrustsService(roleName, service string) bool {
	arn, ok := s.RoleARN(roleName)
	if !ok {
		return false
	}

	_, trust, _, ok := s.findTrustPolicy(arn)

	return ok && authz.Decide([]authz.Policy{trust}, authz.Request{
		Action: "sts:AssumeRole", Principal: authz.Principal{Service: service},
	}).Allowed
}
