// SPDX-License-Identifier: Apache-2.0

package sts_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/sts"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// issuer records the requests to it.
type issuer struct {
	role, session string
	life          int64
	policies      []string
	tags          map[string]string
}

func (i *issuer) AssumeRole(_ context.Context, in iam.RoleRequest) (iam.Credentials, wire.Caller, error) {
	if strings.HasSuffix(in.RoleARN, "/denied") {
		return iam.Credentials{}, wire.Caller{}, &wire.Error{Code: "AccessDenied", Message: "no", Status: http.StatusForbidden}
	}
	*i = issuer{in.RoleARN, in.SessionName, in.Life, in.Policies, in.Tags}
	return iam.Credentials{AccessKeyID: "ASIAAAAAAAAAAAAAAAAA", SecretAccessKey: "s", Token: "t", Expiration: time.Unix(1e9, 0).UTC()},
		wire.Caller{ARN: "arn:x", UserID: "AROA:" + in.SessionName}, nil
}

func client(t *testing.T, i sts.CredentialIssuer, caller wire.Caller) *awssts.Client {
	t.Helper()
	endpoint := wire.NewEndpoint(sts.Service(i, nil))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endpoint.Serve(w, r.WithContext(wire.WithCaller(r.Context(), caller)), "id", nil)
	}))
	t.Cleanup(srv.Close)
	return awssts.NewFromConfig(awstest.NewConfig(srv.URL, "us-east-1", credentials.NewStaticCredentialsProvider("a", "s", "")))
}

func TestAssumeRole(t *testing.T) {
	t.Parallel()
	var i issuer
	c := client(t, &i, wire.Caller{ARN: "arn:aws:iam::000000000000:user/u"})
	arn := "arn:aws:iam::000000000000:role/r"
	out, err := c.AssumeRole(t.Context(), &awssts.AssumeRoleInput{RoleArn: &arn, RoleSessionName: new("me"), DurationSeconds: new(int32(900)), Policy: new("{}")})
	if err != nil || *out.Credentials.SessionToken != "t" || !out.Credentials.Expiration.Equal(time.Unix(1e9, 0)) || *out.AssumedRoleUser.AssumedRoleId != "AROA:me" {
		t.Fatalf("%+v, %v", out, err)
	}
	if i.role != arn || i.session != "me" || i.life != 900 || len(i.policies) != 1 {
		t.Errorf("the issuer was asked for %+v", i)
	}
	for name, c2 := range map[string]struct {
		change func(*awssts.AssumeRoleInput)
		want   string
	}{
		"a denied role":      {func(in *awssts.AssumeRoleInput) { in.RoleArn = new("arn:aws:iam::000000000000:role/denied") }, "AccessDenied"},
		"a name with a star": {func(in *awssts.AssumeRoleInput) { in.RoleSessionName = new("a*") }, "ValidationError"},
		"a short life":       {func(in *awssts.AssumeRoleInput) { in.DurationSeconds = new(int32(60)) }, "ValidationError"},
	} {
		in := &awssts.AssumeRoleInput{RoleArn: &arn, RoleSessionName: new("me")}
		c2.change(in)
		_, err := c.AssumeRole(t.Context(), in)
		var e smithy.APIError
		if !errors.As(err, &e) || e.ErrorCode() != c2.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCallerIdentity(t *testing.T) {
	t.Parallel()
	who := wire.Caller{Account: "000000000000", ARN: "arn:aws:sts::000000000000:assumed-role/r/i-1", UserID: "AROA:i-1"}
	out, err := client(t, &issuer{}, who).GetCallerIdentity(t.Context(), &awssts.GetCallerIdentityInput{})
	if err != nil || *out.Arn != who.ARN || *out.Account != who.Account || *out.UserId != who.UserID {
		t.Errorf("%+v, %v", out, err)
	}
}
