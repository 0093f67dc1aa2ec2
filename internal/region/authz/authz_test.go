// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

const account = "000000000000"

func parse(t *testing.T, kind authz.PolicyKind, statements string) authz.Policy {
	t.Helper()
	p, err := authz.ParsePolicy(kind, `{"Version":"2012-10-17","Statement":[`+statements+`]}`)
	if err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
	return p
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const vol = "arn:aws:ec2:us-east-1:000000000000:volume/vol-1"
	tagged := map[string][]string{"aws:ResourceTag/team": {"a"}, "aws:PrincipalTag/team": {"a"}, "aws:TagKeys": {"x", "y"}, "aws:SourceIp": {"10.1.2.3"}}
	for name, c := range map[string]struct {
		statements string
		action     string
		resource   string
		want       bool
	}{
		"nothing":                  {`{"Effect":"Allow","Action":"s3:*","Resource":"*"}`, "ec2:AttachVolume", vol, false},
		"exact":                    {`{"Effect":"Allow","Action":"ec2:AttachVolume","Resource":"*"}`, "ec2:AttachVolume", vol, true},
		"action case":              {`{"Effect":"Allow","Action":"EC2:attachvolume","Resource":"*"}`, "ec2:AttachVolume", vol, true},
		"wildcards":                {`{"Effect":"Allow","Action":["ec2:*Vol?me"],"Resource":"arn:aws:ec2:*:*:volume/*"}`, "ec2:AttachVolume", vol, true},
		"other resource":           {`{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*:*:instance/*"}`, "ec2:AttachVolume", vol, false},
		"not resource":             {`{"Effect":"Allow","Action":"ec2:*","NotResource":"arn:aws:ec2:*:*:instance/*"}`, "ec2:AttachVolume", vol, true},
		"not action":               {`{"Effect":"Allow","NotAction":"ec2:Attach*","Resource":"*"}`, "ec2:AttachVolume", vol, false},
		"deny wins":                {`{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","Action":"ec2:A*","Resource":"*"}`, "ec2:AttachVolume", vol, false},
		"tag":                      {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/team":["b","a"]}}}`, "x:Y", vol, true},
		"key case":                 {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"AWS:resourcetag/team":"a"}}}`, "x:Y", vol, true},
		"wrong tag":                {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/team":"b"}}}`, "x:Y", vol, false},
		"missing key":              {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/no":"b"}}}`, "x:Y", vol, false},
		"missing, if exists":       {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEqualsIfExists":{"aws:ResourceTag/no":"b"}}}`, "x:Y", vol, true},
		"missing, negated":         {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringNotEquals":{"aws:ResourceTag/no":"b"}}}`, "x:Y", vol, true},
		"negated":                  {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringNotLike":{"aws:ResourceTag/team":["z","a*"]}}}`, "x:Y", vol, false},
		"variable":                 {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/team":"${aws:PrincipalTag/team}"}}}`, "x:Y", vol, true},
		"variable without a value": {`{"Effect":"Allow","Action":"*","Resource":"arn:aws:ec2:*:*:${aws:PrincipalTag/no}/*"}`, "x:Y", vol, false},
		"variable with default":    {`{"Effect":"Allow","Action":"*","Resource":"arn:aws:ec2:*:*:${aws:PrincipalTag/no, 'volume'}/*"}`, "x:Y", vol, true},
		"all values":               {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"ForAllValues:StringEquals":{"aws:TagKeys":["x","y","z"]}}}`, "x:Y", vol, true},
		"not all values":           {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"ForAllValues:StringEquals":{"aws:TagKeys":["x"]}}}`, "x:Y", vol, false},
		"any value":                {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"ForAnyValue:StringLike":{"aws:TagKeys":["y*"]}}}`, "x:Y", vol, true},
		"null true":                {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"Null":{"aws:ResourceTag/team":"true"}}}`, "x:Y", vol, false},
		"null false":               {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"Null":{"aws:ResourceTag/team":false}}}`, "x:Y", vol, true},
		"address":                  {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}}`, "x:Y", vol, true},
		"not address":              {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"}}}`, "x:Y", vol, false},
		"both conditions":          {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"},"StringEquals":{"aws:ResourceTag/team":"b"}}}`, "x:Y", vol, false},
		"identity of all":          {`{"Effect":"Allow","Action":"x:Y","Resource":"` + vol + `"}`, "x:Y", "*", false},
	} {
		p := parse(t, authz.IdentityPolicy, c.statements)
		d := authz.Evaluate([]authz.Policy{p}, authz.Request{Action: c.action, Resource: c.resource, Context: tagged})
		if d.Allowed != c.want {
			t.Errorf("%s: allowed is %v because %s", name, d.Allowed, d.Reason)
		}
	}
}

func TestNumbersDatesAndARNs(t *testing.T) {
	t.Parallel()
	context := map[string][]string{"s3:max-keys": {"10"}, "aws:CurrentTime": {"2026-06-01T00:00:00Z"}, "aws:PrincipalArn": {"arn:aws:iam::0:role/a"}, "aws:SecureTransport": {"false"}}
	for condition, want := range map[string]bool{
		`"NumericLessThan":{"s3:max-keys":10}`:                                  false,
		`"NumericLessThanEquals":{"s3:max-keys":"10"}`:                          true,
		`"NumericNotEquals":{"s3:max-keys":9}`:                                  true,
		`"DateGreaterThan":{"aws:CurrentTime":"2026-01-01T00:00:00Z"}`:          true,
		`"DateLessThan":{"aws:CurrentTime":"2026-01-01T00:00:00Z"}`:             false,
		`"ArnEquals":{"aws:PrincipalArn":"arn:aws:iam::*:role/*"}`:              true,
		`"ArnLike":{"aws:PrincipalArn":"arn:*/a"}`:                              false,
		`"ArnNotLike":{"aws:PrincipalArn":"arn:aws:iam::0:role/b"}`:             true,
		`"Bool":{"aws:SecureTransport":false}`:                                  true,
		`"StringEqualsIgnoreCase":{"aws:PrincipalArn":"ARN:aws:iam::0:role/A"}`: true,
	} {
		p := parse(t, authz.IdentityPolicy, `{"Effect":"Allow","Action":"*","Resource":"*","Condition":{`+condition+`}}`)
		if got := authz.Evaluate([]authz.Policy{p}, authz.Request{Action: "a:B", Context: context}).Allowed; got != want {
			t.Errorf("%s is %v", condition, got)
		}
	}
}

func TestPrincipals(t *testing.T) {
	t.Parallel()
	role := authz.Principal{Account: account, ARN: "arn:aws:sts::" + account + ":assumed-role/r/s", RoleARN: "arn:aws:iam::" + account + ":role/r"}
	service := authz.Principal{Service: "ec2.amazonaws.com"}
	for _, c := range []struct {
		principal, effect string
		who               authz.Principal
		want              authz.Decision
	}{
		{`"*"`, "Allow", role, authz.Decision{Allowed: true}},
		{`"*"`, "Allow", authz.Principal{}, authz.Decision{Allowed: true}},
		{`{"AWS":"` + role.RoleARN + `"}`, "Allow", role, authz.Decision{Allowed: true}},
		{`{"AWS":"arn:aws:iam::` + account + `:root"}`, "Allow", role, authz.Decision{}},
		{`{"AWS":"arn:aws:iam::` + account + `:root"}`, "Deny", role, authz.Decision{Denied: true}},
		{`{"AWS":"arn:aws:iam::` + account + `:role/other"}`, "Allow", authz.Principal{}, authz.Decision{}},
		{`{"Service":"ec2.amazonaws.com"}`, "Allow", service, authz.Decision{Allowed: true}},
		{`{"Service":"ec2.amazonaws.com"}`, "Allow", role, authz.Decision{}},
	} {
		p := parse(t, authz.TrustPolicy, `{"Effect":"`+c.effect+`","Principal":`+c.principal+`,"Action":"sts:AssumeRole"}`)
		d := authz.Evaluate([]authz.Policy{p}, authz.Request{Action: "sts:AssumeRole", Principal: c.who})
		if d.Allowed != c.want.Allowed || d.Denied != c.want.Denied {
			t.Errorf("%s to %s for %+v: %+v", c.effect, c.principal, c.who, d)
		}
	}
	p := parse(t, authz.ResourcePolicy, `{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::`+account+`:root"},"Action":"kms:*","Resource":"*"}`)
	if !authz.DelegatesToAccount(p, account, authz.Request{Action: "kms:Decrypt"}) {
		t.Error("a key's policy that names the account does not delegate to it")
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind      authz.PolicyKind
		document  string
		complaint string
	}{
		{authz.IdentityPolicy, `{`, "syntax"},
		{authz.IdentityPolicy, `{"Version":"2012-10-17","Statement":[]} x`, "syntax"},
		{authz.IdentityPolicy, `{"Version":"2012-10-18","Statement":[{}]}`, "version"},
		{authz.IdentityPolicy, `{"Version":"2012-10-17"}`, "Statement"},
		{authz.IdentityPolicy, `{"Statement":{"Effect":"Maybe","Action":"*","Resource":"*"}}`, "effect"},
		{authz.IdentityPolicy, `{"Statement":{"Effect":"Allow","Resource":"*"}}`, "actions"},
		{authz.IdentityPolicy, `{"Statement":{"Effect":"Allow","Action":"ec2","Resource":"*"}}`, "vendor"},
		{authz.IdentityPolicy, `{"Statement":{"Effect":"Allow","Action":"ec2:*"}}`, "resources"},
		{authz.IdentityPolicy, `{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"vol"}}`, "ARN"},
		{authz.IdentityPolicy, `{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*","Principal":"*"}}`, "principal"},
		{authz.IdentityPolicy, `{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*","Extra":1}}`, "Extra"},
		{authz.IdentityPolicy, `{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*","Condition":{"StringIs":{"a":"b"}}}}`, "StringIs"},
		{authz.IdentityPolicy, `{"Statement":[{"Sid":"A","Effect":"Allow","Action":"a:b","Resource":"*"},{"Sid":"A","Effect":"Allow","Action":"a:b","Resource":"*"}]}`, "unique"},
		{authz.TrustPolicy, `{"Statement":{"Effect":"Allow","Action":"sts:AssumeRole"}}`, "Principal"},
		{authz.TrustPolicy, `{"Statement":{"Effect":"Allow","Action":"sts:AssumeRole","Principal":"*","Resource":"*"}}`, "Resource"},
		{authz.ResourcePolicy, `{"Statement":{"Effect":"Allow","Action":"s3:*","Principal":{"Nobody":"*"},"Resource":"*"}}`, "principal type"},
	} {
		_, err := authz.ParsePolicy(c.kind, c.document)
		if err == nil || !strings.Contains(err.Error(), c.complaint) {
			t.Errorf("%s: %v", c.document, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:*","Resource":"${aws:x}*","Condition":{"ForAllValues:StringNotLikeIfExists":{"a":["b",1,true]}}}]}`, "ec2:X", "arn:aws:ec2:::x")
	f.Fuzz(func(_ *testing.T, document, action, resource string) {
		for _, kind := range []authz.PolicyKind{authz.IdentityPolicy, authz.ResourcePolicy, authz.TrustPolicy} {
			if p, err := authz.ParsePolicy(kind, document); err == nil {
				authz.Evaluate([]authz.Policy{p}, authz.Request{Action: action, Resource: resource, Context: map[string][]string{"a": {action, resource}}})
			}
		}
	})
}
