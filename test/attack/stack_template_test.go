// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// evilTemplate is the launch template of an attacker, whose user data root runs at the boot of a machine.
const evilTemplate = "evil"

// swapTemplates returns the URL of S3 as somebody sees it who replaces each template of CloudFormation at the moment at which
// slipway has written it, and counts these.
func (l *lab) swapTemplates(swapped *atomic.Int32) string {
	l.Helper()
	to, err := url.Parse(l.region.URL)
	l.check(err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { // the host is signed, so it stays
		r.Out.URL.Scheme = to.Scheme
		r.Out.URL.Host = to.Host
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, r)
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/cloudformation/") {
			l.swapTemplate(r.Context(), strings.TrimPrefix(r.URL.Path, "/"+bucket+"/"))
			swapped.Add(1)
		}

		maps.Copy(w.Header(), answer.Header())

		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	l.Cleanup(server.Close)

	return server.URL
}

// swapTemplate replaces the resources of a template in the bucket. The rest stays, since the request has parameters.
func (l *lab) swapTemplate(ctx context.Context, key string) {
	out, err := l.s3(caller{}).GetObject(ctx, &s3.GetObjectInput{Bucket: sdk.String(bucket), Key: &key})
	if err != nil {
		l.Error(err)
		return
	}

	body, err := io.ReadAll(out.Body)
	if err != nil {
		l.Error(err)
		return
	}

	var template map[string]any
	if err := json.Unmarshal(body, &template); err != nil {
		l.Error(err)
		return
	}

	delete(template, "Outputs")
	template["Resources"] = map[string]any{"Evil": map[string]any{
		"Type": "AWS::EC2::LaunchTemplate",
		"Properties": map[string]any{
			"LaunchTemplateName": evilTemplate,
			"LaunchTemplateData": map[string]any{"ImageId": regiontest.ImageID, "UserData": "IyEvYmluL3NoCg=="},
		},
	}}
	if body, err = json.Marshal(template); err != nil {
		l.Error(err)
		return
	}

	_, err = l.s3(caller{}).PutObject(ctx, &s3.PutObjectInput{
		Bucket: sdk.String(bucket), Key: &key, Body: bytes.NewReader(body),
	})
	if err != nil {
		l.Error(err)
	}
}

// TestReplacedTemplate: who can list and write the bucket, and has no right to any key, replaces a template that is too large for a
// request before CloudFormation reads it. Neither a plan nor an apply uses the change set, and neither leaves it. Seen to succeed: the
// apply created the attacker's launch template, whose user data root runs.
func TestReplacedTemplate(t *testing.T) {
	l := newLab(t)
	l.must(caller{}, 0, "create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")

	var swapped atomic.Int32
	l.more = map[string]string{"AWS_ENDPOINT_URL_S3": l.swapTemplates(&swapped)}
	for i, args := range [][]string{
		{"plan", "demo", "--via", "cloudformation"}, {"apply", "demo", "--via", "cloudformation", "--yes"},
	} {
		out, errs, code := l.slipway(caller{}, args...)
		if code != 1 || !strings.Contains(errs, "the object was replaced before CloudFormation read it") {
			t.Errorf("slipway %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
		}

		if n := int(swapped.Load()); n != i+1 {
			t.Errorf("%d templates were replaced", n)
		}
	}

	templates, err := ec2.NewFromConfig(l.config(caller{})).DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{})
	l.check(err)
	for _, made := range templates.LaunchTemplates {
		t.Errorf("launch template %s was created", sdk.ToString(made.LaunchTemplateName))
	}

	stacks, err := cloudformation.NewFromConfig(l.config(caller{})).DescribeStacks(t.Context(), &cloudformation.DescribeStacksInput{})
	l.check(err)
	for _, left := range stacks.Stacks {
		t.Errorf("stack %s is %s", sdk.ToString(left.StackName), left.StackStatus)
	}
}
