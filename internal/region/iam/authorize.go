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
	if d := s.Decide(ctx, c); !d.Allowed {
		return wire.Denied(ctx, c, d.Reason)
	}

	return nil
}

// Decide evaluates the policies of the caller in ctx. Services with policies of their own join its answer with theirs.
func (s *IAM) Decide(ctx context.Context, c wire.Check) authz.Decision {
	caller := wire.CallerFrom(ctx)
	if caller.Root || caller == (wire.Caller{}) {
		return authz.Decision{Allowed: true, Reason: "the account's root may do everything"}
	}

	r := s.Request(ctx, c)
	d := s.decide(caller, c, r)
	if s.cfg.Trace != nil {
		s.cfg.Trace(r, d)
	}

	return d
}

func (s *IAM) decide(caller wire.Caller, c wire.Check, r authz.Request) authz.Decision {
	own, narrowing := s.policiesOf(caller)
	d := authz.Decide(own, r)
	if !d.Allowed || len(narrowing) == 0 {
		return d
	}

	if d = authz.Decide(narrowing, r); !d.Allowed {
		d.Reason = "no session policy allows the " + c.Action + " action"
	}

	return d
}

// Principal is the caller in ctx as policies of resources name it.
func (s *IAM) Principal(ctx context.Context) authz.Principal {
	caller := wire.CallerFrom(ctx)
	p := authz.Principal{Account: caller.Account, ARN: caller.ARN}
	if caller.Role != "" {
		p.RoleARN, _ = s.RoleARN(caller.Role)
	}

	return p
}

// Request is a check with every condition key that IAM knows of the caller and the request.
func (s *IAM) Request(ctx context.Context, c wire.Check) authz.Request {
	keys := wire.Conditions(ctx, c)
	service, _, _ := strings.Cut(c.Action, ":")
	for k, v := range c.Context {
		if name, ok := strings.CutPrefix(k, "aws:ResourceTag/"); ok {
			keys[service+":ResourceTag/"+name] = v
		}
	}

	now := s.cfg.Now().UTC()
	keys["aws:CurrentTime"] = []string{now.Format(time.RFC3339)}
	keys["aws:EpochTime"] = []string{strconv.FormatInt(now.Unix(), 10)}
	s.describeCaller(wire.CallerFrom(ctx), keys)

	return authz.Request{
		Action:    c.Action,
		Resource:  c.Resource,
		Context:   keys,
		Principal: s.Principal(ctx),
	}
}

func (s *IAM) describeCaller(caller wire.Caller, keys map[string][]string) {
	if caller == (wire.Caller{}) || caller == wire.Anonymous() {
		keys["aws:PrincipalType"] = []string{"Anonymous"}
		return
	}

	keys["aws:PrincipalAccount"] = []string{caller.Account}
	keys["aws:userid"] = []string{caller.UserID}
	keys["aws:PrincipalArn"] = []string{caller.ARN}
	s.mu.Lock()
	defer s.mu.Unlock()
	var tags map[string]string

	switch {
	case caller.Root:
		keys["aws:PrincipalType"] = []string{"Account"}
	case caller.Role != "":
		keys["aws:PrincipalType"] = []string{"AssumedRole"}
		if r, ok := s.st.Roles[caller.Role]; ok {
			keys["aws:PrincipalArn"] = []string{r.arn(s)}
			tags = r.Tags
		}

	default:
		keys["aws:PrincipalType"] = []string{"User"}
		if u := s.userByARN(caller.ARN); u != nil {
			keys["aws:username"] = []string{u.Name}
			tags = u.Tags
		}
	}

	for k, v := range tags {
		keys["aws:PrincipalTag/"+k] = []string{v}
	}
}

func (s *IAM) userByARN(arn string) *user {
	return s.st.Users[arn[strings.LastIndex(arn, "/")+1:]]
}

// policiesOf are a caller's own policies, and those that its session was narrowed by. A session outlives its role,
// but not with any right.
func (s *IAM) policiesOf(caller wire.Caller) (own, narrowing []authz.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if caller.Role == "" {
		if u := s.userByARN(caller.ARN); u != nil {
			own = s.parsed(&u.identity)
		}

		return own, nil
	}

	v := s.st.Sessions[caller.AccessKeyID]
	r := s.st.Roles[caller.Role]
	if v == nil || r == nil || r.ID != v.RoleID {
		return nil, nil
	}

	for _, document := range v.Policies {
		narrowing = appendParsed(narrowing, document)
	}

	return s.parsed(&r.identity), narrowing
}

// parsed are all policies of an identity.
func (s *IAM) parsed(i *identity) []authz.Policy {
	var out []authz.Policy
	for _, document := range i.Inline {
		out = appendParsed(out, document)
	}

	for _, arn := range i.Attached {
		if p, err := s.policy(arn); err == nil {
			out = appendParsed(out, p.document())
		}
	}

	return out
}

// appendParsed adds a document that was checked when it was stored.
func appendParsed(list []authz.Policy, document string) []authz.Policy {
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
	name, trust, longest, ok := s.trusted(roleARN)
	if !ok {
		return none, wire.Caller{}, wire.Denied(
			ctx,
			check,
			"the role does not exist or does not trust the caller",
		)
	}

	caller := wire.CallerFrom(ctx)
	if caller.Root {
		return none, wire.Caller{}, wire.Denied(ctx, check, "roles may not be assumed by root accounts")
	}

	r := s.Request(ctx, check)
	own := s.Decide(ctx, check)
	byTrust := authz.Decide([]authz.Policy{trust}, r)
	delegated := authz.NamesAccount(trust, s.cfg.Account, r)
	if own.Denied || byTrust.Denied || !byTrust.Allowed && (!delegated || !own.Allowed) {
		return none, wire.Caller{}, wire.Denied(
			ctx,
			check,
			"the role's trust policy or the caller's policies do not allow it",
		)
	}

	if caller.Role != "" {
		longest = min(longest, defaultSession) // chained roles live an hour at most
	}

	duration, err := checkSession(life, longest, policies)
	if err != nil {
		return none, wire.Caller{}, err
	}

	return s.issue(name, sessionName, duration, policies)
}

// checkSession checks what a caller asks of a session, and returns its life.
func checkSession(life, longest int64, policies []string) (time.Duration, error) {
	if life == 0 {
		life = defaultSession
	}

	if life > longest {
		return 0, wire.Errorf(
			"ValidationError",
			"The requested DurationSeconds exceeds the MaxSessionDuration set for this role.",
		)
	}

	for _, document := range policies {
		if err := checkDocument(authz.Identity, document, maxTrust); err != nil {
			return 0, err
		}
	}

	return time.Duration(life) * time.Second, nil
}

// trusted finds a role by its ARN, with its trust policy and its longest session in seconds.
func (s *IAM) trusted(
	arn string,
) (name string, trust authz.Policy, longest int64, ok bool) { //revive:disable-line:function-result-limit
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.st.Roles[arn[strings.LastIndex(arn, "/")+1:]]
	if r == nil || r.arn(s) != arn {
		return "", authz.Policy{}, 0, false
	}

	trust, err := authz.Parse(authz.Trust, r.Trust)

	return r.Name, trust, r.MaxSession, err == nil
}

// TrustsService tells whether a role's trust policy lets a service such as ec2.amazonaws.com assume it.
func (s *IAM) TrustsService(roleName, service string) bool {
	arn, ok := s.RoleARN(roleName)
	if !ok {
		return false
	}

	_, trust, _, ok := s.trusted(arn)

	return ok && authz.Decide([]authz.Policy{trust}, authz.Request{
		Action: "sts:AssumeRole", Principal: authz.Principal{Service: service},
	}).Allowed
}
