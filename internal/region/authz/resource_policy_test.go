// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// TestResourcePoliciesAndLimits decides requests that only a resource's policy allows, for callers whose boundary or session policies do not
// allow them. See "Evaluating effective permissions with boundaries" in the IAM User Guide.
func TestResourcePoliciesAndLimits(t *testing.T) {
	t.Parallel()
	const (
		roleARN    = "arn:aws:iam::" + account + ":role/r"
		sessionARN = "arn:aws:sts::" + account + ":assumed-role/r/s"
		userARN    = "arn:aws:iam::" + account + ":user/u"
		list       = `{"Effect":"Allow","Action":"s3:ListBucket","Resource":"*"}`
		denied     = `{"Effect":"Deny","Action":"s3:GetObject","Resource":"*"}`
	)
	role := authz.Principal{Account: account, ARN: sessionARN, RoleARN: roleARN}
	user := authz.Principal{Account: account, ARN: userARN}
	for _, c := range []struct {
		name, principal   string
		boundary, session string // statements; empty for none
		caller            authz.Principal
		want              bool
	}{
		{name: "a role without limits", principal: roleARN, caller: role, want: true},
		{name: "everyone", principal: "*", caller: role, want: true},
		{name: "the boundary limits a role", principal: roleARN, boundary: list, caller: role},
		{name: "the boundary limits a role of everyone", principal: "*", boundary: list, caller: role},
		{name: "a session policy limits a role", principal: roleARN, session: list, caller: role},
		{name: "no limit for a named session", principal: sessionARN, boundary: list, session: list, caller: role, want: true},
		{name: "no limit for a named user", principal: userARN, boundary: list, caller: user, want: true},
		{name: "the boundary allows it", principal: roleARN, boundary: allowAll, caller: role, want: true},
	} {
		own := decideOwn(t, c.boundary, c.session, c.caller)
		p := parse(t, authz.ResourcePolicy, `{"Effect":"Allow","Principal":{"AWS":"`+c.principal+`"},"Action":"s3:*","Resource":"*"}`)
		d := authz.EvaluateResource(p, getObject(c.caller), own)
		if own.Allowed || own.Denied || d.Allowed != c.want || d.Denied {
			t.Errorf("%s: %+v after %+v", c.name, d, own)
		}
	}
	if own := decideOwn(t, "", allowAll+","+denied, role); !own.Denied {
		t.Errorf("an explicit deny of a session policy counts only if the role allows the request: %+v", own)
	}
}

func getObject(caller authz.Principal) authz.Request {
	return authz.Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::b/x", Principal: caller}
}

// decideOwn decides the request of a caller whose own policies allow something else.
func decideOwn(t *testing.T, boundary, session string, caller authz.Principal) authz.Decision {
	t.Helper()
	var limit, limits []authz.Policy
	if boundary != "" {
		limit = []authz.Policy{parse(t, authz.IdentityPolicy, boundary)}
	}
	if session != "" {
		limits = []authz.Policy{parse(t, authz.IdentityPolicy, session)}
	}
	own := []authz.Policy{parse(t, authz.IdentityPolicy, `{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`)}
	return authz.EvaluateSession(own, limit, limits, getObject(caller))
}
