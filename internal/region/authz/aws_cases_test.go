// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// The pages of AWS's documentation that the cases are from, in
// https://docs.aws.amazon.com/IAM/latest/UserGuide/PAGE.html.
const (
	pageLogic      = "reference_policies_evaluation-logic_policy-eval-denyallow"
	pageOperators  = "reference_policies_elements_condition_operators"
	pageSets       = "reference_policies_condition-single-vs-multi-valued-context-keys"
	pageVariables  = "reference_policies_variables"
	pageBoundaries = "access_policies_boundaries"
	pageResource   = "reference_policies_elements_resource"
	pageAction     = "reference_policies_elements_action"
	pageNotAction  = "reference_policies_elements_notaction"
	pageNull       = "reference_policies_elements_condition_operators#Conditions_Null"
	pageIfExists   = "reference_policies_elements_condition_operators#Conditions_IfExists"
	pageCondition  = "reference_policies_elements_condition"
	pageSessions   = "access_policies#policies_session"
	pageAssumed    = "id_credentials_temp_control-access_assumerole"
)

// awsCase is one case of the documentation. Resource and action are fixed unless set.
type awsCase struct {
	page, name string
	statements string              // of the identity's policy
	boundary   string              // statements; empty for none
	session    string              // statements of a session policy; empty for none
	action     string              // default s3:GetObject
	resource   string              // default arn:aws:s3:::b/home/alice/x
	context    map[string][]string // condition keys
	want       bool
}

// allowIf returns an Allow of everything with a condition.
func allowIf(condition string) string {
	return `{"Effect":"Allow","Action":"*","Resource":"*","Condition":{` + condition + `}}`
}

const allowAll = `{"Effect":"Allow","Action":"*","Resource":"*"}`

func denyIf(condition string) string {
	return allowAll + `,{"Effect":"Deny","Action":"*","Resource":"*","Condition":{` + condition + `}}`
}

func keys(pairs ...string) map[string][]string {
	out := map[string][]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = append(out[pairs[i]], pairs[i+1])
	}
	return out
}

func logicCases() []awsCase {
	return []awsCase{
		{page: pageLogic, name: "all requests are denied by default", statements: `{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`},
		{page: pageLogic, name: "an explicit allow overrides the default", statements: allowAll, want: true},
		{page: pageLogic, name: "an explicit deny overrides any allow", statements: allowAll + `,{"Effect":"Deny","Action":"s3:GetObject","Resource":"*"}`},
		{page: pageLogic, name: "the order of statements does not matter", statements: `{"Effect":"Deny","Action":"s3:GetObject","Resource":"*"},` + allowAll},
		{page: pageLogic, name: "a deny of another action does not matter", statements: allowAll + `,{"Effect":"Deny","Action":"s3:PutObject","Resource":"*"}`, want: true},
		{page: pageAction, name: "actions ignore case", statements: `{"Effect":"Allow","Action":"S3:getobject","Resource":"*"}`, want: true},
		{page: pageAction, name: "star in an action", statements: `{"Effect":"Allow","Action":"s3:Get*","Resource":"*"}`, want: true},
		{page: pageAction, name: "question mark in an action", statements: `{"Effect":"Allow","Action":"s3:Get?bject","Resource":"*"}`, want: true},
		{page: pageAction, name: "star does not match another service", statements: `{"Effect":"Allow","Action":"s3*:PutObject","Resource":"*"}`},
		{page: pageNotAction, name: "allow everything but an action", statements: `{"Effect":"Allow","NotAction":"iam:*","Resource":"*"}`, want: true},
		{page: pageNotAction, name: "the action that is left out", statements: `{"Effect":"Allow","NotAction":"s3:*","Resource":"*"}`},
		{page: pageNotAction, name: "deny everything but an action", statements: allowAll + `,{"Effect":"Deny","NotAction":"s3:GetObject","Resource":"*"}`, want: true},
		{page: pageResource, name: "star spans slashes", statements: `{"Effect":"Allow","Action":"*","Resource":"arn:aws:s3:::b/*"}`, want: true},
		{page: pageResource, name: "resources are case-sensitive", statements: `{"Effect":"Allow","Action":"*","Resource":"arn:aws:s3:::b/HOME/*"}`},
		{page: pageResource, name: "a bucket is not its objects", statements: `{"Effect":"Allow","Action":"*","Resource":"arn:aws:s3:::b"}`},
		{page: pageResource, name: "question mark is one character", statements: `{"Effect":"Allow","Action":"*","Resource":"arn:aws:s3:::?/home/*"}`, want: true},
		{page: pageResource, name: "question mark is not none", statements: `{"Effect":"Allow","Action":"*","Resource":"arn:aws:s3:::b?/home/*"}`},
		{page: pageResource, name: "NotResource", statements: `{"Effect":"Allow","Action":"*","NotResource":"arn:aws:s3:::secret/*"}`, want: true},
		{page: pageResource, name: "NotResource that matches", statements: `{"Effect":"Allow","Action":"*","NotResource":"arn:aws:s3:::b/*"}`},
		{page: pageCondition, name: "operators are combined with AND", statements: allowIf(`"StringEquals":{"aws:username":"alice"},"Bool":{"aws:SecureTransport":"true"}`), context: keys("aws:username", "alice", "aws:SecureTransport", "false")},
		{page: pageCondition, name: "keys of an operator are combined with AND", statements: allowIf(`"StringEquals":{"aws:username":"alice","aws:PrincipalType":"User"}`), context: keys("aws:username", "alice", "aws:PrincipalType", "Account")},
		{page: pageCondition, name: "values are combined with OR", statements: allowIf(`"StringEquals":{"aws:username":["bob","alice"]}`), context: keys("aws:username", "alice"), want: true},
		{page: pageCondition, name: "values of a negated operator are combined with NOR", statements: allowIf(`"StringNotEquals":{"aws:username":["bob","alice"]}`), context: keys("aws:username", "alice")},
		{page: pageCondition, name: "condition keys ignore case", statements: allowIf(`"StringEquals":{"AWS:UserName":"alice"}`), context: keys("aws:username", "alice"), want: true},
	}
}

func operatorCases() []awsCase {
	at := keys("aws:CurrentTime", "2026-06-01T12:00:00Z", "aws:EpochTime", "1780315200")
	from := keys("aws:SourceIp", "203.0.113.7")
	of := keys("aws:PrincipalArn", "arn:aws:iam::123456789012:role/team/deployer")
	return []awsCase{
		{page: pageOperators, name: "StringEquals is case-sensitive", statements: allowIf(`"StringEquals":{"aws:username":"Alice"}`), context: keys("aws:username", "alice")},
		{page: pageOperators, name: "StringEqualsIgnoreCase", statements: allowIf(`"StringEqualsIgnoreCase":{"aws:username":"ALICE"}`), context: keys("aws:username", "alice"), want: true},
		{page: pageOperators, name: "StringNotEqualsIgnoreCase", statements: allowIf(`"StringNotEqualsIgnoreCase":{"aws:username":"ALICE"}`), context: keys("aws:username", "alice")},
		{page: pageOperators, name: "StringEquals takes no wildcards", statements: allowIf(`"StringEquals":{"aws:username":"ali*"}`), context: keys("aws:username", "alice")},
		{page: pageOperators, name: "StringLike takes wildcards", statements: allowIf(`"StringLike":{"aws:username":"a?i*"}`), context: keys("aws:username", "alice"), want: true},
		{page: pageOperators, name: "StringNotLike", statements: allowIf(`"StringNotLike":{"aws:username":"b*"}`), context: keys("aws:username", "alice"), want: true},
		{page: pageOperators, name: "NumericLessThan", statements: allowIf(`"NumericLessThan":{"s3:max-keys":"10"}`), context: keys("s3:max-keys", "9"), want: true},
		{page: pageOperators, name: "NumericGreaterThanEquals", statements: allowIf(`"NumericGreaterThanEquals":{"s3:max-keys":"10"}`), context: keys("s3:max-keys", "10"), want: true},
		{page: pageOperators, name: "a number that is none", statements: allowIf(`"NumericEquals":{"s3:max-keys":"10"}`), context: keys("s3:max-keys", "ten")},
		{page: pageOperators, name: "DateGreaterThan", statements: allowIf(`"DateGreaterThan":{"aws:CurrentTime":"2026-01-01T00:00:00Z"}`), context: at, want: true},
		{page: pageOperators, name: "DateLessThan with a time zone", statements: allowIf(`"DateLessThan":{"aws:CurrentTime":"2026-06-01T13:00:00+02:00"}`), context: at},
		{page: pageOperators, name: "a date as epoch seconds", statements: allowIf(`"DateLessThanEquals":{"aws:EpochTime":"1780315200"}`), context: at, want: true},
		{page: pageOperators, name: "Bool true", statements: allowIf(`"Bool":{"aws:SecureTransport":"true"}`), context: keys("aws:SecureTransport", "true"), want: true},
		{page: pageOperators, name: "Bool of a missing key", statements: allowIf(`"Bool":{"aws:SecureTransport":"false"}`)},
		{page: pageOperators, name: "IpAddress in a range", statements: allowIf(`"IpAddress":{"aws:SourceIp":"203.0.113.0/24"}`), context: from, want: true},
		{page: pageOperators, name: "IpAddress without a prefix is a /32", statements: allowIf(`"IpAddress":{"aws:SourceIp":"203.0.113.8"}`), context: from},
		{page: pageOperators, name: "NotIpAddress", statements: denyIf(`"NotIpAddress":{"aws:SourceIp":["192.0.2.0/24","203.0.113.0/24"]}`), context: from, want: true},
		{page: pageOperators, name: "IpAddress of another version", statements: allowIf(`"IpAddress":{"aws:SourceIp":"2001:db8::/32"}`), context: from},
		{page: pageOperators, name: "ArnLike with a star in a part", statements: allowIf(`"ArnLike":{"aws:PrincipalArn":"arn:aws:iam::*:role/team/*"}`), context: of, want: true},
		{page: pageOperators, name: "ArnEquals behaves as ArnLike", statements: allowIf(`"ArnEquals":{"aws:PrincipalArn":"arn:aws:iam::*:role/team/*"}`), context: of, want: true},
		{page: pageOperators, name: "ArnLike: a star does not span colons", statements: allowIf(`"ArnLike":{"aws:PrincipalArn":"arn:aws:*:role/team/deployer"}`), context: of},
		{page: pageOperators, name: "ArnNotLike", statements: denyIf(`"ArnNotLike":{"aws:PrincipalArn":"arn:aws:iam::123456789012:role/team/*"}`), context: of, want: true},
		{page: pageOperators, name: "StringLike with an ARN spans colons", statements: allowIf(`"StringLike":{"aws:PrincipalArn":"arn:aws:*:role/team/deployer"}`), context: of, want: true},
		{page: pageOperators, name: "a positive operator on a missing key", statements: allowIf(`"StringLike":{"aws:username":"*"}`)},
		{page: pageOperators, name: "a negated operator on a missing key", statements: allowIf(`"StringNotEquals":{"aws:username":"bob"}`), want: true},
		{page: pageOperators, name: "a negated operator in a deny, missing key", statements: denyIf(`"StringNotEquals":{"aws:PrincipalTag/team":"a"}`)},
		{page: pageIfExists, name: "IfExists on a missing key", statements: allowIf(`"StringLikeIfExists":{"ec2:InstanceType":"t3.*"}`), want: true},
		{page: pageIfExists, name: "IfExists on a key that matches", statements: allowIf(`"StringLikeIfExists":{"ec2:InstanceType":"t3.*"}`), context: keys("ec2:InstanceType", "t3.large"), want: true},
		{page: pageIfExists, name: "IfExists on a key that does not match", statements: allowIf(`"StringLikeIfExists":{"ec2:InstanceType":"t3.*"}`), context: keys("ec2:InstanceType", "m5.large")},
		{page: pageIfExists, name: "a deny with IfExists on a missing key applies", statements: denyIf(`"BoolIfExists":{"aws:MultiFactorAuthPresent":"false"}`)},
		{page: pageIfExists, name: "a deny with IfExists and MFA", statements: denyIf(`"BoolIfExists":{"aws:MultiFactorAuthPresent":"false"}`), context: keys("aws:MultiFactorAuthPresent", "true"), want: true},
		{page: pageNull, name: "Null true: the key must be missing", statements: allowIf(`"Null":{"aws:TokenIssueTime":"true"}`), want: true},
		{page: pageNull, name: "Null true, but the key is there", statements: allowIf(`"Null":{"aws:TokenIssueTime":"true"}`), context: keys("aws:TokenIssueTime", "x")},
		{page: pageNull, name: "Null false: the key must be there", statements: allowIf(`"Null":{"aws:TokenIssueTime":"false"}`), context: keys("aws:TokenIssueTime", "x"), want: true},
		{page: pageNull, name: "Null false, but the key is missing", statements: allowIf(`"Null":{"aws:TokenIssueTime":"false"}`)},
	}
}

func setCases() []awsCase {
	two := keys("aws:TagKeys", "environment", "aws:TagKeys", "webapp")
	one := keys("aws:TagKeys", "environment")
	return []awsCase{
		{page: pageSets, name: "ForAllValues: every value is listed", statements: allowIf(`"ForAllValues:StringEquals":{"aws:TagKeys":["environment","webapp","cost"]}`), context: two, want: true},
		{page: pageSets, name: "ForAllValues: one value is not listed", statements: allowIf(`"ForAllValues:StringEquals":{"aws:TagKeys":["environment"]}`), context: two},
		{page: pageSets, name: "ForAllValues: a missing key matches", statements: allowIf(`"ForAllValues:StringEquals":{"aws:TagKeys":["environment"]}`), want: true},
		{page: pageSets, name: "ForAllValues with Null closes the gap", statements: allowIf(`"ForAllValues:StringEquals":{"aws:TagKeys":["environment"]},"Null":{"aws:TagKeys":"false"}`)},
		{page: pageSets, name: "ForAnyValue: one of the values", statements: allowIf(`"ForAnyValue:StringEquals":{"aws:TagKeys":["webapp"]}`), context: two, want: true},
		{page: pageSets, name: "ForAnyValue: none of the values", statements: allowIf(`"ForAnyValue:StringEquals":{"aws:TagKeys":["webapp"]}`), context: one},
		{page: pageSets, name: "ForAnyValue: a missing key does not match", statements: allowIf(`"ForAnyValue:StringEquals":{"aws:TagKeys":["webapp"]}`)},
		{page: pageSets, name: "ForAllValues:StringNotEquals in a deny", statements: denyIf(`"ForAllValues:StringNotEquals":{"aws:TagKeys":["cost"]}`), context: two},
		{page: pageSets, name: "ForAnyValue:StringNotEquals: any other value", statements: denyIf(`"ForAnyValue:StringNotEquals":{"aws:TagKeys":["environment"]}`), context: two},
		{page: pageSets, name: "ForAnyValue:StringNotEquals: no other value", statements: denyIf(`"ForAnyValue:StringNotEquals":{"aws:TagKeys":["environment"]}`), context: one, want: true},
		{page: pageSets, name: "ForAllValues:StringLike", statements: allowIf(`"ForAllValues:StringLike":{"aws:TagKeys":["env*","web*"]}`), context: two, want: true},
	}
}

func variableCases() []awsCase {
	alice := keys("aws:username", "alice", "aws:PrincipalTag/team", "home")
	return []awsCase{
		{page: pageVariables, name: "a variable in a resource", statements: `{"Effect":"Allow","Action":"*","Resource":"arn:aws:s3:::b/home/${aws:username}/*"}`, context: alice, want: true},
		{page: pageVariables, name: "another user's folder", statements: `{"Effect":"Allow","Action":"*","Resource":"arn:aws:s3:::b/home/${aws:username}/*"}`, context: keys("aws:username", "bob")},
		{page: pageVariables, name: "a variable without a value matches nothing", statements: `{"Effect":"Allow","Action":"*","Resource":"arn:aws:s3:::b/home/${aws:username}/*"}`},
		{page: pageVariables, name: "a default value", statements: `{"Effect":"Allow","Action":"*","Resource":"arn:aws:s3:::b/${aws:PrincipalTag/none, 'home'}/*"}`, context: alice, want: true},
		{page: pageVariables, name: "a variable in a condition", statements: allowIf(`"StringEquals":{"s3:prefix":"${aws:username}"}`), context: keys("aws:username", "alice", "s3:prefix", "alice"), want: true},
		{page: pageVariables, name: "a tag of the caller", statements: `{"Effect":"Allow","Action":"*","Resource":"arn:aws:s3:::b/${aws:PrincipalTag/team}/*"}`, context: alice, want: true},
		{page: pageVariables, name: "a star in a value is no wildcard", statements: `{"Effect":"Allow","Action":"*","Resource":"arn:aws:s3:::b/home/${aws:username}/*"}`, context: keys("aws:username", "*")},
		{page: pageVariables, name: "a literal star", statements: allowIf(`"StringLike":{"s3:prefix":"a${*}"}`), context: keys("s3:prefix", "ab")},
	}
}

func boundaryCases() []awsCase {
	s3 := `{"Effect":"Allow","Action":"s3:*","Resource":"*"}`
	return []awsCase{
		{page: pageBoundaries, name: "policy and boundary allow", statements: allowAll, boundary: s3, want: true},
		{page: pageBoundaries, name: "the boundary gives nothing by itself", statements: `{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`, boundary: s3},
		{page: pageBoundaries, name: "the boundary does not allow", statements: allowAll, boundary: s3, action: "iam:CreateUser"},
		{page: pageBoundaries, name: "an implicit deny of the boundary", statements: allowAll, boundary: `{"Effect":"Allow","Action":"cloudwatch:*","Resource":"*"}`},
		{page: pageBoundaries, name: "an explicit deny of the boundary", statements: allowAll, boundary: allowAll + `,{"Effect":"Deny","Action":"s3:GetObject","Resource":"*"}`},
		{page: pageBoundaries, name: "an explicit deny of the policy", statements: s3 + `,{"Effect":"Deny","Action":"s3:GetObject","Resource":"*"}`, boundary: allowAll},
		{page: pageBoundaries, name: "a condition of the boundary", statements: allowAll, boundary: allowIf(`"Bool":{"aws:SecureTransport":"true"}`), context: keys("aws:SecureTransport", "false")},
	}
}

// sessionCases are about sessions of roles: "The permissions for a session are the intersection of the identity-based policies for the IAM
// entity used to create the session and the session policies" and "An explicit deny in any of these policies overrides the allow".
func sessionCases() []awsCase {
	s3 := `{"Effect":"Allow","Action":"s3:*","Resource":"*"}`
	list := `{"Effect":"Allow","Action":"s3:ListBucket","Resource":"*"}`
	denied := `,{"Effect":"Deny","Action":"s3:GetObject","Resource":"*"}`

	return []awsCase{
		{page: pageSessions, name: "a session without a policy has what the role has", statements: s3, want: true},
		{page: pageSessions, name: "the role and the session policy allow", statements: allowAll, session: s3, want: true},
		{page: pageSessions, name: "a session policy gives nothing by itself", statements: list, session: s3},
		{page: pageSessions, name: "the session policy does not allow", statements: s3, session: list},
		{page: pageSessions, name: "an explicit deny of the session policy", statements: s3, session: s3 + denied},
		{page: pageSessions, name: "an explicit deny of the role", statements: s3 + denied, session: s3},
		{page: pageSessions, name: "role, boundary and session policy allow", statements: allowAll, boundary: s3, session: allowAll, want: true},
		{page: pageSessions, name: "a session policy does not exceed the boundary", statements: allowAll, boundary: list, session: allowAll},
		{page: pageSessions, name: "a boundary does not replace the session policy", statements: allowAll, boundary: allowAll, session: list},
		{
			page: pageSessions, name: "an explicit deny of the boundary", statements: allowAll, boundary: s3 + denied,
			session: allowAll,
		},
		{
			page: pageAssumed, name: "the role may read and write, the session reads", statements: s3, action: "s3:PutObject",
			session: `{"Effect":"Allow","Action":["s3:GetObject","s3:ListBucket"],"Resource":"*"}`,
		},
		{
			page: pageAssumed, name: "a folder of the session", statements: s3, want: true,
			session: `{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/home/alice/*"}`,
		},
		{
			page: pageAssumed, name: "another folder than that of the session", statements: s3, resource: "arn:aws:s3:::b/home/bob/x",
			session: `{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/home/alice/*"}`,
		},
		{
			page: pageSessions, name: "a condition of the session policy", statements: allowAll,
			session: allowIf(`"Bool":{"aws:SecureTransport":"true"}`), context: keys("aws:SecureTransport", "false"),
		},
	}
}

// TestCasesOfAWS decides the cases of AWS's documentation.
func TestCasesOfAWS(t *testing.T) {
	t.Parallel()
	n := 0
	for _, list := range [][]awsCase{logicCases(), operatorCases(), setCases(), variableCases(), boundaryCases(), sessionCases()} {
		for _, c := range list {
			n++
			var limit []authz.Policy
			if c.boundary != "" {
				limit = []authz.Policy{parse(t, authz.IdentityPolicy, c.boundary)}
			}
			var session []authz.Policy
			if c.session != "" {
				session = []authz.Policy{parse(t, authz.IdentityPolicy, c.session)}
			}
			r := authz.Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::b/home/alice/x", Context: c.context}
			if c.action != "" {
				r.Action = c.action
			}
			if c.resource != "" {
				r.Resource = c.resource
			}
			d := authz.EvaluateSession([]authz.Policy{parse(t, authz.IdentityPolicy, c.statements)}, limit, session, r)
			if d.Allowed != c.want {
				t.Errorf("%s (%s): allowed is %v because %s", c.name, c.page, d.Allowed, d.Reason)
			}
		}
	}
	if n < 60 {
		t.Errorf("only %d cases", n)
	}
	t.Logf("COUNT cases of AWS's documentation decided: %d", n)
}
