// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// TestNotPrincipalDenies decides requests that a resource's policy allows for everyone, and denies for all but some. See
// "AWS JSON policy elements: NotPrincipal" in the IAM User Guide, key points.
func TestNotPrincipalDenies(t *testing.T) {
	t.Parallel()
	const (
		root       = "arn:aws:iam::" + account + ":root"
		userARN    = "arn:aws:iam::" + account + ":user/u"
		roleARN    = "arn:aws:iam::" + account + ":role/r"
		sessionARN = "arn:aws:sts::" + account + ":assumed-role/r/s"
	)
	user := authz.Principal{Account: account, ARN: userARN}
	session := authz.Principal{Account: account, ARN: sessionARN, RoleARN: roleARN}
	limited := func(p authz.Principal) authz.Principal {
		p.Bounded = true
		return p
	}

	for _, c := range []struct {
		name   string
		but    []string // AWS principals
		caller authz.Principal
		denied bool
	}{
		{name: "a user and its account", but: []string{userARN, root}, caller: user},
		{name: "a user and the number of its account", but: []string{userARN, account}, caller: user},
		{name: "a user without its account", but: []string{userARN}, caller: user, denied: true},
		{name: "another user of the account", but: []string{userARN + "2", root}, caller: user, denied: true},
		{name: "the account does not stand for its users", but: []string{root}, caller: user, denied: true},
		{name: "the root", but: []string{root}, caller: authz.Principal{Account: account, ARN: root}},
		{name: "a role and its account", but: []string{roleARN, root}, caller: session},
		{name: "a session without its role", but: []string{sessionARN, root}, caller: session, denied: true},
		{name: "a user with a boundary", but: []string{userARN, root}, caller: limited(user), denied: true},
		{name: "a role with a boundary", but: []string{sessionARN, roleARN, root}, caller: limited(session), denied: true},
		{name: "everyone", but: []string{"*"}, caller: user},
		{name: "everyone, with a boundary", but: []string{"*"}, caller: limited(user), denied: true},
		{name: "a service", but: []string{root}, caller: authz.Principal{Service: "ec2.amazonaws.com"}, denied: true},
	} {
		p := parse(t, authz.ResourcePolicy, `{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"*"},`+
			`{"Effect":"Deny","NotPrincipal":{"AWS":["`+strings.Join(c.but, `","`)+`"]},"Action":"s3:*","Resource":"*"}`)
		d := authz.Evaluate([]authz.Policy{p}, getObject(c.caller))
		if d.Denied != c.denied || d.Allowed == c.denied {
			t.Errorf("%s: %+v, want denied = %t", c.name, d, c.denied)
		}
	}
}

// TestNotPrincipalIsForDenials: AWS has NotPrincipal in the policies of resources, with Deny only.
func TestNotPrincipalIsForDenials(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind      authz.PolicyKind
		statement string
	}{
		"Allow":        {authz.ResourcePolicy, `{"Effect":"Allow","NotPrincipal":"*","Action":"s3:*","Resource":"*"}`},
		"trust policy": {authz.TrustPolicy, `{"Effect":"Deny","NotPrincipal":{"AWS":"` + account + `"},"Action":"sts:AssumeRole"}`},
	} {
		_, err := authz.ParsePolicy(c.kind, `{"Version":"2012-10-17","Statement":[`+c.statement+`]}`)
		if err == nil || !strings.Contains(err.Error(), "NotPrincipal") {
			t.Errorf("%s: %v, want an error that names NotPrincipal", name, err)
		}
	}
}
