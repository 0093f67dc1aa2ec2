// SPDX-License-Identifier: Apache-2.0

package ssm_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/ssm"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

const debian = "/aws/service/debian/release/12/latest/amd64"

func client(t *testing.T, dir string) *awsssm.Client {
	t.Helper()
	svc, err := ssm.New(ssm.Config{Region: "us-east-1", Account: "000000000000", State: state.Dir(dir), Now: time.Now, PublicParameters: map[string]string{debian: "ami-1"}})
	if err != nil {
		t.Fatal(err)
	}
	endpoint := wire.NewEndpoint(svc.Wire())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endpoint.Serve(w, r.WithContext(wire.WithCaller(r.Context(), wire.Caller{Root: true})), "id", nil)
	}))
	t.Cleanup(srv.Close)
	return awsssm.NewFromConfig(awstest.NewConfig(srv.URL, "us-east-1", credentials.NewStaticCredentialsProvider("a", "s", "")))
}

func code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	return ""
}

func TestPublicParameterNamesTheImage(t *testing.T) {
	t.Parallel()
	c := client(t, t.TempDir())
	out, err := c.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: new(debian)})
	if err != nil || *out.Parameter.Value != "ami-1" || out.Parameter.Type != types.ParameterTypeString {
		t.Fatalf("%+v, %v", out, err)
	}
	many, err := c.GetParameters(t.Context(), &awsssm.GetParametersInput{Names: []string{debian, "/none"}})
	if err != nil || len(many.Parameters) != 1 {
		t.Fatalf("%+v, %v", many, err)
	}
	if d := cmp.Diff([]string{"/none"}, many.InvalidParameters); d != "" {
		t.Error(d)
	}
	if _, err := c.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: new("/none")}); code(err) != "ParameterNotFound" {
		t.Errorf("a missing parameter: %v", err)
	}
	if _, err := c.PutParameter(t.Context(), &awsssm.PutParameterInput{Name: new(debian), Value: new("x"), Type: types.ParameterTypeString}); err == nil {
		t.Error("AWS's own parameter can be changed")
	}
}

func TestOwnParameters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := client(t, dir)
	for _, name := range []string{"/own/a", "/own/b/c"} {
		if _, err := c.PutParameter(t.Context(), &awsssm.PutParameterInput{Name: &name, Value: new("v"), Type: types.ParameterTypeString}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.PutParameter(t.Context(), &awsssm.PutParameterInput{Name: new("/own/a"), Value: new("w"), Type: types.ParameterTypeString})
	if code(err) != "ParameterAlreadyExists" {
		t.Errorf("the same name again: %v", err)
	}
	again, err := c.PutParameter(t.Context(), &awsssm.PutParameterInput{Name: new("/own/a"), Value: new("w"), Type: types.ParameterTypeString, Overwrite: new(true)})
	if err != nil || again.Version != 2 {
		t.Errorf("overwriting: %+v, %v", again, err)
	}
	c = client(t, dir)
	for recursive, want := range map[bool][]string{false: {"/own/a"}, true: {"/own/a", "/own/b/c"}} {
		out, err := c.GetParametersByPath(t.Context(), &awsssm.GetParametersByPathInput{Path: new("/own"), Recursive: &recursive})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range out.Parameters {
			got = append(got, *p.Name)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("recursive %v: %s", recursive, d)
		}
	}
	if _, err := c.DeleteParameter(t.Context(), &awsssm.DeleteParameterInput{Name: new("/own/a")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: new("/own/a")}); code(err) != "ParameterNotFound" {
		t.Errorf("a deleted parameter: %v", err)
	}
}
