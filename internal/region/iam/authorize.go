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

// Authorize implements [wire.Authorizer]: the policies of the caller in ctx must allow the action.
func (s *IAM) Authorize(ctx context.Context, c wire.AccessCheck) error {
	if d := s.EvaluateIdentity(ctx, c); !d.Allowed {
		return wire.AccessDenied(ctx, c, d.Reason)
	}

	return nil
}

// EvaluateIdentity evaluates the policies of the caller in ctx. Services whose resources have policies, such
// as S3 and KMS, combine the decision with that of the resource's policy.
func (s *IAM) EvaluateIdentity(ctx context.Context, c wire.AccessCheck) authz.Decision {
	caller := wire.CallerFrom(ctx)
	if caller.IsUnrestricted() {
		return authz.Decision{Allowed: true, Reason: "the account's root may do everything"}
	}

	r := s.BuildRequest(ctx, c)
	p := s.callerPolicies(caller)
	d := authz.EvaluateSession(p.own, p.boundary, p.session, r)
	if s.cfg.Trace != nil {
		s.cfg.Trace(r, d)
	}

	return d
}

// CallerPrincipal returns the caller in ctx as a principal, for the policies of resources.
func (s *IAM) CallerPrincipal(ctx context.Context) authz.Principal {
	caller := wire.CallerFrom(ctx)
	p := authz.Principal{Account: caller.Account, ARN: caller.ARN, Bounded: hasBoundary(s, caller)}
	if caller.Role != "" {
		p.RoleARN, _ = findRoleARN(s, caller.Role)
	}

	return p
}

// hasBoundary reports whether the user or role of a caller has a permissions boundary.
func hasBoundary(s *IAM, caller wire.Caller) bool {
	s.store.Lock()
	defer s.store.Unlock()
	if caller.Role != "" {
		r := s.st.Roles[caller.Role]
		return r != nil && r.Boundary != ""
	}

	u := s.st.findUserByARN(caller.ARN)

	return u != nil && u.Boundary != ""
}

// BuildRequest returns a check with the caller as principal and with all condition keys of the caller and the
// request.
func (s *IAM) BuildRequest(ctx context.Context, c wire.AccessCheck) authz.Request {
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

// addCallerKeys adds the condition keys that describe the caller.
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
			tags = s.st.sessionTags(r, caller.AccessKeyID)
		}

	default:
		keys["aws:PrincipalType"] = []string{"User"}
		if u := s.st.findUserByARN(caller.ARN); u != nil {
			keys["aws:username"] = []string{u.Name}
			tags = u.Tags
		}
	}

	for k, v := range tags {
		keys["aws:PrincipalTag/"+k] = []string{v}
	}
}

func (st *serviceState) findUserByARN(arn string) *user {
	return st.Users[arn[strings.LastIndex(arn, "/")+1:]]
}

// identityPolicies are the policies that decide for a caller.
type identityPolicies struct {
	own      []authz.Policy // of the user or role
	boundary []authz.Policy // nil: no boundary
	session  []authz.Policy // of a role's session
}

// callerPolicies returns the policies of a user or a role, its boundary, and the session policies of a role's
// session. A session whose role was deleted, or deleted and created again, has no policies.
func (s *IAM) callerPolicies(caller wire.Caller) (out identityPolicies) {
	s.store.Lock()
	defer s.store.Unlock()
	if caller.Role == "" {
		if u := s.st.findUserByARN(caller.ARN); u != nil {
			out.own = s.st.parseIdentityPolicies(&u.identity)
			out.boundary = s.st.boundaryPolicies(&u.identity)
		}

		return out
	}

	v := s.st.Sessions[caller.AccessKeyID]
	r := s.st.Roles[caller.Role]
	if v == nil || r == nil || r.ID != v.RoleID {
		return out
	}

	for _, document := range v.Policies {
		out.session = appendPolicy(out.session, document)
	}

	effective := staleHandlers{s}.effectivePolicies(r)
	effective.session = out.session

	return effective
}

// parseIdentityPolicies returns all inline and attached policies of an identity.
func (st *serviceState) parseIdentityPolicies(i *identity) []authz.Policy {
	var out []authz.Policy
	st.walkDocuments(i, func(_, document string) { out = appendPolicy(out, document) })

	return out
}

// walkDocuments calls visit with the names and documents of the policies of an identity: inline ones by name, then those that are attached.
func (st *serviceState) walkDocuments(i *identity, visit func(name, document string)) {
	for _, name := range sortedKeys(i.Inline) {
		visit(name, i.Inline[name])
	}

	for _, arn := range i.Attached {
		if p, err := st.findPolicy(arn); err == nil {
			visit(p.Name, p.defaultDocument())
		}
	}
}

// appendPolicy adds the policy of a document. It skips an invalid document: documents are checked before they
// are stored.
func appendPolicy(list []authz.Policy, document string) []authz.Policy {
	if p, err := authz.ParsePolicy(authz.IdentityPolicy, document); err == nil {
		return append(list, p)
	}

	return list
}
