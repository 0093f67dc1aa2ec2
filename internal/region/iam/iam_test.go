// SPDX-License-Identifier: Apache-2.0

package iam_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	awsiam "github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

const (
	trust = `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}}`
	some  = `{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}}`
)

type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func open(t *testing.T, dir string, c *clock) (*iam.IAM, *awsiam.Client) {
	t.Helper()
	id, err := iam.New(iam.Config{Account: "000000000000", AccessKeyID: "AKIAROOT", SecretKey: "s", State: state.Dir(dir), Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	endpoint := wire.NewEndpoint(id.Service())
	root := wire.Caller{Root: true, Account: "000000000000", ARN: "arn:aws:iam::000000000000:root"}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endpoint.Serve(w, r.WithContext(wire.WithCaller(r.Context(), root)), "id", nil)
	}))
	t.Cleanup(srv.Close)
	return id, awsiam.NewFromConfig(awstest.NewConfig(srv.URL, "us-east-1", credentials.NewStaticCredentialsProvider("AKIAROOT", "s", "")))
}

func fresh(t *testing.T) (*iam.IAM, *awsiam.Client) {
	t.Helper()
	return open(t, t.TempDir(), &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)})
}

func code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func role(t *testing.T, c *awsiam.Client, name string) {
	t.Helper()
	if _, err := c.CreateRole(t.Context(), &awsiam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: new(trust), Tags: []types.Tag{{Key: new("k"), Value: new(name)}}}); err != nil {
		t.Fatal(err)
	}
}

func TestRoleLifeIsInOrder(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	ctx := t.Context()
	role(t, c, "r")
	steps := []struct {
		name string
		do   func() error
		want string
	}{
		{"the same role", func() error {
			_, err := c.CreateRole(ctx, &awsiam.CreateRoleInput{RoleName: new("R"), AssumeRolePolicyDocument: new(trust)})
			return err
		}, "EntityAlreadyExists"},
		{"a profile", func() error {
			_, err := c.CreateInstanceProfile(ctx, &awsiam.CreateInstanceProfileInput{InstanceProfileName: new("p"), Tags: []types.Tag{{Key: new("a"), Value: new("b")}}})
			return err
		}, ""},
		{"a missing role in it", func() error {
			_, err := c.AddRoleToInstanceProfile(ctx, &awsiam.AddRoleToInstanceProfileInput{InstanceProfileName: new("p"), RoleName: new("none")})
			return err
		}, "NoSuchEntity"},
		{"the role in it", func() error {
			_, err := c.AddRoleToInstanceProfile(ctx, &awsiam.AddRoleToInstanceProfileInput{InstanceProfileName: new("p"), RoleName: new("r")})
			return err
		}, ""},
		{"a second role in it", func() error {
			_, err := c.AddRoleToInstanceProfile(ctx, &awsiam.AddRoleToInstanceProfileInput{InstanceProfileName: new("p"), RoleName: new("r")})
			return err
		}, "LimitExceeded"},
		{"an inline policy", func() error {
			_, err := c.PutRolePolicy(ctx, &awsiam.PutRolePolicyInput{RoleName: new("r"), PolicyName: new("i"), PolicyDocument: new(some)})
			return err
		}, ""},
		{"a broken one", func() error {
			_, err := c.PutRolePolicy(ctx, &awsiam.PutRolePolicyInput{RoleName: new("r"), PolicyName: new("j"), PolicyDocument: new(`{"Statement":{}}`)})
			return err
		}, "MalformedPolicyDocument"},
		{"one too large", func() error {
			large := strings.Replace(some, "ec2:*", "ec2:"+strings.Repeat("x", 10000), 1)
			_, err := c.PutRolePolicy(ctx, &awsiam.PutRolePolicyInput{RoleName: new("r"), PolicyName: new("j"), PolicyDocument: &large})
			_, again := c.PutRolePolicy(ctx, &awsiam.PutRolePolicyInput{RoleName: new("r"), PolicyName: new("l"), PolicyDocument: &large})
			return errors.Join(err, again)
		}, "LimitExceeded"},
		{"a policy of AWS's", func() error {
			_, err := c.AttachRolePolicy(ctx, &awsiam.AttachRolePolicyInput{RoleName: new("r"), PolicyArn: new("arn:aws:iam::aws:policy/AdministratorAccess")})
			return err
		}, ""},
		{"delete with a policy attached", func() error { return del(t, c) }, "DeleteConflict"},
		{"detach it", func() error {
			_, err := c.DetachRolePolicy(ctx, &awsiam.DetachRolePolicyInput{RoleName: new("r"), PolicyArn: new("arn:aws:iam::aws:policy/AdministratorAccess")})
			return err
		}, ""},
		{"delete with an inline policy", func() error { return del(t, c) }, "DeleteConflict"},
		{"delete the inline policies", func() error {
			list, err := c.ListRolePolicies(ctx, &awsiam.ListRolePoliciesInput{RoleName: new("r")})
			if err != nil {
				return err
			}
			for _, name := range list.PolicyNames {
				if _, err := c.DeleteRolePolicy(ctx, &awsiam.DeleteRolePolicyInput{RoleName: new("r"), PolicyName: &name}); err != nil {
					return err
				}
			}
			return nil
		}, ""},
		{"delete in a profile", func() error { return del(t, c) }, "DeleteConflict"},
		{"delete a profile with a role", func() error {
			_, err := c.DeleteInstanceProfile(ctx, &awsiam.DeleteInstanceProfileInput{InstanceProfileName: new("p")})
			return err
		}, "DeleteConflict"},
		{"take it out", func() error {
			_, err := c.RemoveRoleFromInstanceProfile(ctx, &awsiam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: new("p"), RoleName: new("r")})
			return err
		}, ""},
		{"delete", func() error { return del(t, c) }, ""},
		{"delete again", func() error { return del(t, c) }, "NoSuchEntity"},
	}
	for _, s := range steps {
		if got := code(s.do()); got != s.want {
			t.Errorf("%s: %q, want %q", s.name, got, s.want)
		}
	}
}

func del(t *testing.T, c *awsiam.Client) error {
	t.Helper()
	_, err := c.DeleteRole(t.Context(), &awsiam.DeleteRoleInput{RoleName: new("r")})
	return err
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	for name, in := range map[string]struct {
		change func(*awsiam.CreateRoleInput)
		want   string
	}{
		"a long name":         {func(in *awsiam.CreateRoleInput) { in.RoleName = new(strings.Repeat("x", 65)) }, "ValidationError"},
		"a name with a space": {func(in *awsiam.CreateRoleInput) { in.RoleName = new("a b") }, "ValidationError"},
		"a path without end":  {func(in *awsiam.CreateRoleInput) { in.Path = new("/x") }, "ValidationError"},
		"no principal":        {func(in *awsiam.CreateRoleInput) { in.AssumeRolePolicyDocument = new(some) }, "MalformedPolicyDocument"},
		"a tag twice": {func(in *awsiam.CreateRoleInput) {
			in.Tags = []types.Tag{{Key: new("a"), Value: new("")}, {Key: new("A"), Value: new("")}}
		}, "InvalidInput"},
		"a tag of AWS's":      {func(in *awsiam.CreateRoleInput) { in.Tags = []types.Tag{{Key: new("aws:x"), Value: new("")}} }, "InvalidInput"},
		"too long a session":  {func(in *awsiam.CreateRoleInput) { in.MaxSessionDuration = new(int32(43201)) }, "ValidationError"},
		"too short a session": {func(in *awsiam.CreateRoleInput) { in.MaxSessionDuration = new(int32(60)) }, "ValidationError"},
	} {
		i := &awsiam.CreateRoleInput{RoleName: new("r"), AssumeRolePolicyDocument: new(trust)}
		in.change(i)
		if _, err := c.CreateRole(t.Context(), i); code(err) != in.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := c.ListRoles(t.Context(), &awsiam.ListRolesInput{}); err != nil || len(list.Roles) != 0 {
		t.Errorf("a refused role exists: %+v, %v", list, err)
	}
}

func TestAccountDetailsByPage(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	ctx := t.Context()
	for _, name := range []string{"c", "a", "b"} {
		role(t, c, name)
	}
	for _, do := range []func() error{
		func() error {
			_, err := c.PutRolePolicy(ctx, &awsiam.PutRolePolicyInput{RoleName: new("b"), PolicyName: new("i"), PolicyDocument: new(some)})
			return err
		},
		func() error {
			_, err := c.CreateInstanceProfile(ctx, &awsiam.CreateInstanceProfileInput{InstanceProfileName: new("p"), Tags: []types.Tag{{Key: new("x"), Value: new("y z")}}})
			return err
		},
		func() error {
			_, err := c.AddRoleToInstanceProfile(ctx, &awsiam.AddRoleToInstanceProfileInput{InstanceProfileName: new("p"), RoleName: new("b")})
			return err
		},
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	pages := awsiam.NewGetAccountAuthorizationDetailsPaginator(c, &awsiam.GetAccountAuthorizationDetailsInput{Filter: []types.EntityType{types.EntityTypeRole}, MaxItems: new(int32(2))})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.RoleDetailList {
			names = append(names, *r.RoleName)
			if *r.Tags[0].Value != *r.RoleName {
				t.Errorf("%s has tags %v", *r.RoleName, r.Tags)
			}
			if *r.RoleName != "b" {
				continue
			}
			document, err := url.PathUnescape(*r.RolePolicyList[0].PolicyDocument)
			if err != nil || document != some || strings.ContainsAny(*r.RolePolicyList[0].PolicyDocument, " +{") {
				t.Errorf("the document is %s, %v", *r.RolePolicyList[0].PolicyDocument, err)
			}
			if p := r.InstanceProfileList[0]; *p.InstanceProfileName != "p" || *p.Tags[0].Value != "y z" || *p.Roles[0].RoleName != "b" {
				t.Errorf("the profile is %+v", p)
			}
		}
	}
	if d := cmp.Diff([]string{"a", "b", "c"}, names); d != "" {
		t.Error(d)
	}
}

func TestManagedPolicyVersions(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	ctx := t.Context()
	made, err := c.CreatePolicy(ctx, &awsiam.CreatePolicyInput{PolicyName: new("p"), PolicyDocument: new(some)})
	if err != nil {
		t.Fatal(err)
	}
	arn := made.Policy.Arn
	for range 4 {
		if _, err := c.CreatePolicyVersion(ctx, &awsiam.CreatePolicyVersionInput{PolicyArn: arn, PolicyDocument: new(some), SetAsDefault: true}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = c.CreatePolicyVersion(ctx, &awsiam.CreatePolicyVersionInput{PolicyArn: arn, PolicyDocument: new(some)})
	if code(err) != "LimitExceeded" {
		t.Errorf("a sixth version: %v", err)
	}
	if _, err := c.DeletePolicyVersion(ctx, &awsiam.DeletePolicyVersionInput{PolicyArn: arn, VersionId: new("v5")}); code(err) != "DeleteConflict" {
		t.Errorf("deleting the default version: %v", err)
	}
	if _, err := c.DeletePolicy(ctx, &awsiam.DeletePolicyInput{PolicyArn: arn}); code(err) != "DeleteConflict" {
		t.Errorf("deleting with versions: %v", err)
	}
	got, err := c.GetPolicy(ctx, &awsiam.GetPolicyInput{PolicyArn: arn})
	if err != nil || *got.Policy.DefaultVersionId != "v5" {
		t.Errorf("the policy: %+v, %v", got, err)
	}
}

func TestSimulate(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	role(t, c, "r")
	if _, err := c.PutRolePolicy(t.Context(), &awsiam.PutRolePolicyInput{RoleName: new("r"), PolicyName: new("i"), PolicyDocument: new(some)}); err != nil {
		t.Fatal(err)
	}
	out, err := c.SimulatePrincipalPolicy(t.Context(), &awsiam.SimulatePrincipalPolicyInput{
		PolicySourceArn: new("arn:aws:iam::000000000000:role/r"), ActionNames: []string{"ec2:RunInstances", "s3:GetObject"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []types.PolicyEvaluationDecisionType
	for _, r := range out.EvaluationResults {
		got = append(got, r.EvalDecision)
	}
	if d := cmp.Diff([]types.PolicyEvaluationDecisionType{"allowed", "implicitDeny"}, got); d != "" {
		t.Error(d)
	}
}

func TestSessionsOutliveTheProcessNotTheirTime(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	id, c := open(t, dir, now)
	role(t, c, "r")
	if _, err := c.CreateInstanceProfile(t.Context(), &awsiam.CreateInstanceProfileInput{InstanceProfileName: new("p"), Path: new("/x/")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddRoleToInstanceProfile(t.Context(), &awsiam.AddRoleToInstanceProfileInput{InstanceProfileName: new("p"), RoleName: new("r")}); err != nil {
		t.Fatal(err)
	}
	made, err := id.IssueRoleCredentials("r", "i-1")
	if err != nil || !strings.HasPrefix(made.AccessKeyID, "ASIA") || len(made.AccessKeyID) != 20 {
		t.Fatalf("credentials %+v, %v", made, err)
	}
	id, _ = open(t, dir, now)
	k, ok := id.FindKey(made.AccessKeyID)
	if !ok || k.Secret != made.SecretAccessKey || k.Token != made.Token || k.Caller.Session != "i-1" || k.Caller.Role != "r" {
		t.Errorf("after a restart the key is %+v, %v", k, ok)
	}
	for _, name := range []string{"p", "arn:aws:iam::000000000000:instance-profile/x/p"} {
		if p, ok := id.InstanceProfile(name); !ok || p.Role != "r" || p.ARN != "arn:aws:iam::000000000000:instance-profile/x/p" {
			t.Errorf("profile %s: %+v, %v", name, p, ok)
		}
	}
	if _, ok := id.InstanceProfile("arn:aws:iam::000000000000:instance-profile/p"); ok {
		t.Error("an ARN with another path finds the profile")
	}
	if !id.TrustsService("r", "ec2.amazonaws.com") || id.TrustsService("r", "lambda.amazonaws.com") {
		t.Error("the role trusts the wrong services")
	}
	now.now = made.Expiration.Add(2 * time.Hour)
	if _, err := id.IssueRoleCredentials("r", "i-2"); err != nil {
		t.Fatal(err)
	}
	if _, ok := id.FindKey(made.AccessKeyID); ok {
		t.Error("expired credentials are kept for ever")
	}
	if _, err := id.IssueRoleCredentials("none", "i-1"); code(err) != "NoSuchEntity: The role with name none cannot be found." {
		t.Errorf("a missing role: %v", err)
	}
}
