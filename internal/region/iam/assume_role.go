// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// RoleRequest asks for credentials of a role.
type RoleRequest struct {
	RoleARN     string
	SessionName string
	Life        int64             // seconds; 0 means an hour
	Policies    []string          // documents of session policies
	Tags        map[string]string // of the session
}

// AssumeRole returns new credentials of a role for the caller in ctx, and the caller that they identify. The
// role's trust policy must allow it; if the trust policy names the account, the caller's own policies must
// allow it too. life is in seconds, and 0 means an hour. policies are documents of session policies. A
// refusal is a [wire.Error].
func (s *IAM) AssumeRole(ctx context.Context, in RoleRequest) (Credentials, wire.Caller, error) {
	check := wire.AccessCheck{Action: "sts:AssumeRole", Resource: in.RoleARN, Context: in.tagKeys()}
	role, ok := s.findTrustPolicy(in.RoleARN)
	if _, visible := s.RoleARN(role.name); !ok || !visible {
		return Credentials{}, wire.Caller{}, wire.AccessDenied(
			ctx,
			check,
			"",
		)
	}

	caller := wire.CallerFrom(ctx)
	if caller.Root {
		return Credentials{}, wire.Caller{}, newRootCallerError()
	}

	if !mayAssume(ctx, s, role, check) {
		return Credentials{}, wire.Caller{}, wire.AccessDenied(
			ctx,
			check,
			"",
		)
	}

	tagging := check
	tagging.Action = "sts:TagSession"
	if len(in.Tags) > 0 && !mayAssume(ctx, s, role, tagging) {
		return Credentials{}, wire.Caller{}, wire.AccessDenied(
			ctx,
			tagging,
			"",
		)
	}

	if caller.Role != "" {
		role.maxSession = min(role.maxSession, defaultSessionSeconds) // the limit of AWS for role chaining
	}

	duration, err := resolveSessionDuration(in.Life, role.maxSession, in.Policies)
	if err != nil {
		return Credentials{}, wire.Caller{}, err
	}

	return s.issueCredentials(role.name, in.SessionName, duration, sessionLimits{policies: in.Policies, tags: in.Tags})
}

// mayAssume reports whether the trust policy of a role and the policies of the caller allow the action of c on the role.
func mayAssume(ctx context.Context, s *IAM, role assumableRole, c wire.AccessCheck) bool {
	r := s.BuildRequest(ctx, c)
	own := s.EvaluateIdentity(ctx, c)
	byTrust := authz.EvaluateResource(role.trust, r, own)
	delegated := authz.DelegatesToAccount(role.trust, s.cfg.Account, r)

	return !own.Denied && !byTrust.Denied && (byTrust.Allowed || delegated && own.Allowed)
}

// tagKeys returns the condition keys of the tags of a session.
func (in RoleRequest) tagKeys() map[string][]string {
	if len(in.Tags) == 0 {
		return nil
	}

	keys := map[string][]string{"aws:TagKeys": slices.Sorted(maps.Keys(in.Tags))}
	for k, v := range in.Tags {
		keys["aws:RequestTag/"+k] = []string{v}
	}

	return keys
}

// sessionTags returns the tags of a role's session with an access key: those of the role, and those of the session, which
// take the place of a tag of the role with the same key.
func (st *serviceState) sessionTags(r *role, accessKeyID string) map[string]string {
	v := st.Sessions[accessKeyID]
	if v == nil || len(v.Tags) == 0 {
		return r.Tags
	}

	out := map[string]string{}
	maps.Copy(out, r.Tags)

	for key, value := range v.Tags {
		for old := range r.Tags {
			if strings.EqualFold(old, key) {
				delete(out, old)
			}
		}

		out[key] = value
	}

	return out
}

// resolveSessionDuration checks the lifetime and the policies that a caller asks for, and returns the
// lifetime. life and longest are in seconds.
func resolveSessionDuration(life, longest int64, policies []string) (time.Duration, error) {
	if life == 0 {
		life = defaultSessionSeconds
	}

	if life > longest {
		return 0, newErrorf(
			codeValidation,
			"The requested DurationSeconds exceeds the MaxSessionDuration set for this role.",
		)
	}

	for _, document := range policies {
		if err := validateDocument(authz.IdentityPolicy, document, maxTrustPolicyBytes); err != nil {
			return 0, err
		}
	}

	return time.Duration(life) * time.Second, nil
}

// assumableRole is a role with its parsed trust policy.
type assumableRole struct {
	name       string
	trust      authz.Policy
	maxSession int64 // seconds
}

// newRootCallerError returns STS's error for the account's root, which cannot assume roles.
func newRootCallerError() error {
	return newErrorf(codeAccessDenied, "Roles may not be assumed by root accounts.")
}

// findTrustPolicy returns the role with an ARN. ok is false if there is none.
func (s *IAM) findTrustPolicy(arn string) (found assumableRole, ok bool) {
	s.store.Lock()
	defer s.store.Unlock()
	r := s.st.Roles[arn[strings.LastIndex(arn, "/")+1:]]
	if r == nil || r.roleARN(s) != arn {
		return assumableRole{}, false
	}

	trust, err := authz.ParsePolicy(authz.TrustPolicy, r.Trust)

	return assumableRole{name: r.Name, trust: trust, maxSession: r.MaxSession}, err == nil
}

// TrustsService reports whether the trust policy of a role allows a service, such as ec2.amazonaws.com, to
// assume it.
func (s *IAM) TrustsService(roleName, service string) bool {
	arn, ok := findRoleARN(s, roleName)
	if !ok {
		return false
	}

	r, ok := s.findTrustPolicy(arn)

	return ok && authz.Evaluate([]authz.Policy{r.trust}, authz.Request{
		Action:    "sts:AssumeRole",
		Principal: authz.Principal{Service: service},
	}).Allowed
}
