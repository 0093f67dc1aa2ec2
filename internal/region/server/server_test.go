// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	awsiam "github.com/aws/aws-sdk-go-v2/service/iam"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	v1ec2 "github.com/aws/aws-sdk-go/service/ec2"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/server"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/sts"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

const (
	account = "000000000000"
	keyID   = "AKIAROOT"
	secret  = "rootsecret"
)

type region struct {
	url    string
	iam    *iam.IAM
	server *server.Server
}

func start(t *testing.T, before func(context.Context, string, string) error) region {
	t.Helper()
	return startWith(t, server.Config{BeforeOperation: before})
}

// startWith starts a server with the given hooks.
func startWith(t *testing.T, hooks server.Config) region {
	t.Helper()
	id, err := iam.New(iam.Config{Account: account, AccessKeyID: keyID, SecretKey: secret, State: state.Dir(t.TempDir()), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	attach := wire.NewOperation("AttachVolume", func(context.Context, *v1ec2.AttachVolumeInput) (*v1ec2.VolumeAttachment, error) {
		return &v1ec2.VolumeAttachment{State: new("attaching")}, nil
	})
	s, err := server.New(server.Config{
		Region: "us-east-1", Keys: id, Authorizer: id, Now: time.Now, BeforeOperation: hooks.BeforeOperation, Faults: hooks.Faults, KillClient: hooks.KillClient,
		Services: []wire.Service{id.Service(), sts.Service(id, nil), {
			Name: "ec2", Protocol: wire.EC2QueryProtocol, Version: "2016-11-15", Namespace: "http://ec2.amazonaws.com/doc/2016-11-15/", Operations: []wire.Operation{attach},
			Authorize: func(ctx context.Context, op string, in any) error {
				return wire.Authorize(ctx, wire.AccessCheck{
					Action: "ec2:" + op, Resource: "arn:aws:ec2:us-east-1:" + account + ":volume/" + wire.StringMember(in, "VolumeId"),
					Context: map[string][]string{"aws:ResourceTag/cluster": {"c"}},
				})
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return region{srv.URL, id, s}
}

func as(c iam.Credentials) aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.Token)
}

func root() aws.CredentialsProvider {
	return as(iam.Credentials{AccessKeyID: keyID, SecretAccessKey: secret})
}

func (r region) iamClient(c aws.CredentialsProvider) *awsiam.Client {
	return awsiam.NewFromConfig(awstest.NewConfig(r.url, "us-east-1", c))
}

func (r region) stsClient(c aws.CredentialsProvider) *awssts.Client {
	return awssts.NewFromConfig(awstest.NewConfig(r.url, "us-east-1", c))
}

func (r region) ec2Client(c aws.CredentialsProvider) *ec2.Client {
	return ec2.NewFromConfig(awstest.NewConfig(r.url, "us-east-1", c))
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

const trustEC2 = `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}}`

func TestInstanceRoleIsEnforced(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	ctx := t.Context()
	admin := r.iamClient(root())
	if _, err := admin.CreateRole(ctx, &awsiam.CreateRoleInput{RoleName: new("node"), AssumeRolePolicyDocument: new(trustEC2)}); err != nil {
		t.Fatal(err)
	}
	_, err := admin.PutRolePolicy(ctx, &awsiam.PutRolePolicyInput{RoleName: new("node"), PolicyName: new("p"), PolicyDocument: new(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:AttachVolume","Resource":"arn:aws:ec2:*:*:volume/vol-1",` +
			`"Condition":{"StringEquals":{"ec2:ResourceTag/cluster":"c"},"Bool":{"aws:SecureTransport":"true"},"IpAddress":{"aws:SourceIp":"127.0.0.0/8"}}}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.iam.IssueRoleCredentials("node", "i-0123")
	if err != nil {
		t.Fatal(err)
	}
	who, err := r.stsClient(as(c)).GetCallerIdentity(ctx, &awssts.GetCallerIdentityInput{})
	if err != nil || *who.Arn != "arn:aws:sts::000000000000:assumed-role/node/i-0123" || !strings.HasSuffix(*who.UserId, ":i-0123") {
		t.Fatalf("the caller is %+v, %v", who, err)
	}
	node := r.ec2Client(as(c))
	for volume, want := range map[string]string{"vol-1": "", "vol-2": "UnauthorizedOperation"} {
		_, err := node.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: new(volume), InstanceId: new("i-1"), Device: new("/dev/sdf")})
		if code(err) != want {
			t.Errorf("attaching %s: %v", volume, err)
		}
	}
	if _, err := r.iamClient(as(c)).ListRoles(ctx, &awsiam.ListRolesInput{}); code(err) != "AccessDenied" {
		t.Errorf("listing roles: %v", err)
	}
	calls := r.server.CallCounts()
	if calls["ec2:AttachVolume"] != 2 || calls["iam:ListRoles"] != 1 {
		t.Errorf("calls are counted as %v", calls)
	}
	if _, err := admin.DeleteRolePolicy(ctx, &awsiam.DeleteRolePolicyInput{RoleName: new("node"), PolicyName: new("p")}); err != nil {
		t.Fatal(err)
	}
	_, err = node.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: new("vol-1"), InstanceId: new("i-1"), Device: new("/dev/sdf")})
	if code(err) != "UnauthorizedOperation" {
		t.Errorf("without its policy the role may still attach: %v", err)
	}
}

func TestUsersAndAssumedRoles(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	ctx := t.Context()
	admin := r.iamClient(root())
	if _, err := admin.CreateUser(ctx, &awsiam.CreateUserInput{UserName: new("u")}); err != nil {
		t.Fatal(err)
	}
	made, err := admin.CreateAccessKey(ctx, &awsiam.CreateAccessKeyInput{UserName: new("u")})
	if err != nil {
		t.Fatal(err)
	}
	user := as(iam.Credentials{AccessKeyID: *made.AccessKey.AccessKeyId, SecretAccessKey: *made.AccessKey.SecretAccessKey})
	_, err = admin.CreateRole(ctx, &awsiam.CreateRoleInput{RoleName: new("r"), AssumeRolePolicyDocument: new(
		`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::000000000000:root"},"Action":"sts:AssumeRole"}}`)})
	if err != nil {
		t.Fatal(err)
	}
	arn := "arn:aws:iam::000000000000:role/r"
	assume := func(c aws.CredentialsProvider) (*awssts.AssumeRoleOutput, error) {
		return r.stsClient(c).AssumeRole(ctx, &awssts.AssumeRoleInput{RoleArn: &arn, RoleSessionName: new("s1")})
	}
	if _, err := assume(user); code(err) != "AccessDenied" {
		t.Errorf("a user without the right assumes the role: %v", err)
	}
	if _, err := assume(root()); code(err) != "AccessDenied" {
		t.Errorf("the root assumes a role: %v", err)
	}
	_, err = admin.PutUserPolicy(ctx, &awsiam.PutUserPolicyInput{UserName: new("u"), PolicyName: new("p"), PolicyDocument: new(
		`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"sts:AssumeRole","Resource":"` + arn + `"}}`)})
	if err != nil {
		t.Fatal(err)
	}
	out, err := assume(user)
	if err != nil {
		t.Fatal(err)
	}
	c := out.Credentials
	who, err := r.stsClient(credentials.NewStaticCredentialsProvider(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)).GetCallerIdentity(ctx, &awssts.GetCallerIdentityInput{})
	if err != nil || *who.Arn != "arn:aws:sts::000000000000:assumed-role/r/s1" {
		t.Errorf("the caller is %+v, %v", who, err)
	}
}

// TestPresignedIdentityCarriesAHeader checks the kind of request with which a worker proves its
// identity.
func TestPresignedIdentityCarriesAHeader(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	signed, err := awssts.NewPresignClient(r.stsClient(root()), func(o *awssts.PresignOptions) {
		o.ClientOptions = append(o.ClientOptions, func(o *awssts.Options) {
			o.APIOptions = append(o.APIOptions, smithyhttp.SetHeaderValue("X-Slipway-Csr-Sha256", "abc"))
		})
	}).PresignGetCallerIdentity(t.Context(), &awssts.GetCallerIdentityInput{})
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]int{"abc": http.StatusOK, "abd": http.StatusForbidden} {
		req, err := http.NewRequestWithContext(t.Context(), signed.Method, signed.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Slipway-Csr-Sha256", value)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != want {
			b, _ := io.ReadAll(resp.Body)
			t.Errorf("with the header %q the answer is %s %s", value, resp.Status, b)
		}
	}
}

func TestFaultsAreInjected(t *testing.T) {
	t.Parallel()
	r := start(t, func(_ context.Context, service, op string) error {
		if service == "ec2" && op == "AttachVolume" {
			return &wire.Error{Code: "RequestLimitExceeded", Message: "slow down", Status: http.StatusServiceUnavailable}
		}
		return nil
	})
	_, err := r.ec2Client(root()).AttachVolume(t.Context(), &ec2.AttachVolumeInput{VolumeId: new("v"), InstanceId: new("i"), Device: new("d")})
	if code(err) != "RequestLimitExceeded" {
		t.Error(err)
	}
}

func TestWithoutSignature(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for name, c := range map[string]struct {
		body, target, header, want string
	}{
		"query":        {"Action=ListRoles&Version=2010-05-08", "", "", "MissingAuthenticationToken"},
		"STS":          {"Action=GetCallerIdentity&Version=2011-06-15", "", "", "MissingAuthenticationToken"},
		"half a key":   {"Action=ListRoles", "", "AWS4-HMAC-SHA256 Credential=x", "IncompleteSignature"},
		"other scheme": {"Action=ListRoles", "", "Bearer x", "IncompleteSignature"},
		"no service":   {"Action=X", "", "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/nope/aws4_request, SignedHeaders=host, Signature=0", ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if c.header != "" {
			req.Header.Set("Authorization", c.header)
			req.Header.Set("X-Amz-Date", "20260101T000000Z")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b := new(strings.Builder)
		_ = resp.Write(b)
		resp.Body.Close()
		if resp.StatusCode < 400 || !strings.Contains(b.String(), c.want) {
			t.Errorf("%s: %s", name, b)
		}
	}
}

func TestCLIReadsIAM(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("aws")
	if err != nil {
		t.Skip("the AWS CLI is not on this machine: it does not judge IAM here")
	}
	r := start(t, nil)
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), path, append([]string{"--endpoint-url", r.url, "--output", "text"}, args...)...)
		cmd.Env = append(cmd.Environ(), "AWS_ACCESS_KEY_ID="+keyID, "AWS_SECRET_ACCESS_KEY="+secret, "AWS_DEFAULT_REGION=us-east-1", "AWS_CONFIG_FILE=/nonexistent")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("aws %s: %v", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}
	run("iam", "create-role", "--role-name", "a", "--assume-role-policy-document", trustEC2, "--tags", "Key=k,Value=v w")
	for _, c := range []struct{ args, want string }{
		{"sts get-caller-identity --query Arn", "arn:aws:iam::000000000000:root"},
		{"iam list-roles --query Roles[].RoleName", "a"},
		{"iam get-role --role-name a --query Role.AssumeRolePolicyDocument.Statement.Principal.Service", "ec2.amazonaws.com"},
		{"iam list-role-tags --role-name a --query Tags[0].Value", "v w"},
		{"iam get-account-authorization-details --query RoleDetailList[0].RoleName", "a"},
	} {
		if got := run(strings.Fields(c.args)...); got != c.want {
			t.Errorf("aws %s: %q, want %q", c.args, got, c.want)
		}
	}
}
