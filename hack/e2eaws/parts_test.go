// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
)

// TestTagIndexShowsUnknownKinds reads two pages of the Resource Groups Tagging API.
func TestTagIndexShowsUnknownKinds(t *testing.T) {
	arn := func(resource string) string { return "arn:aws:" + resource }
	pages := map[string]string{
		"": `{"PaginationToken": "2", "ResourceTagMappingList": [{"ResourceARN": "` + arn("ec2:us-east-1:1:natgateway/nat-1") + `"},
			{"ResourceARN": "` + arn("s3:::slipway-e2e-0101-0000-abcd") + `"}]}`,
		"2": `{"PaginationToken": "", "ResourceTagMappingList": [{"ResourceARN": "` + arn("logs:us-east-1:1:log-group:/x") + `"},
			{"ResourceARN": "` + arn("elasticloadbalancing:us-east-1:1:loadbalancer/net/x/1") + `"}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			PaginationToken string
			TagFilters      []struct {
				Key    string
				Values []string
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.TagFilters) != 1 || in.TagFilters[0].Key != runTag {
			t.Errorf("request %+v, %v", in, err)
		}
		if !strings.Contains(r.Header.Get("Authorization"), "/us-east-1/tagging/aws4_request") {
			t.Errorf("signature %q", r.Header.Get("Authorization"))
		}
		_, _ = io.WriteString(w, pages[in.PaginationToken])
	}))
	defer server.Close()

	cfg := awstest.NewConfig(server.URL, "us-east-1", credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""))
	a := account{cfg: cfg, endpoint: server.URL}
	index := tagIndex{account: a, client: server.Client(), now: time.Now}
	got, err := index.findResources(t.Context(), "e2e-0101-0000-abcd", newInventory(a, "e2e-0101-0000-abcd").allKinds())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"arn:aws:logs:us-east-1:1:log-group:/x"}, got.unknown); diff != "" || got.known != 3 {
		t.Errorf("unknown kinds (-want +got):\n%s\nknown: %d, want 3", diff, got.known)
	}
}

// TestDifferencesAreNamed compares a step with the local region.
func TestDifferencesAreNamed(t *testing.T) {
	want := expectedStep{Calls: map[string]int{"EC2:DescribeVpcs": 2, "EC2:DescribeTags": 1}, Warnings: []string{"open"}}
	got := expectedStep{Calls: map[string]int{"EC2:DescribeVpcs": 3, "IAM:ListRoles": 1}, Warnings: []string{"slow"}}
	lines := compareStep("plan", got, want)
	if diff := cmp.Diff([]string{
		"plan: 0 × EC2:DescribeTags, in the local region 1",
		"plan: 3 × EC2:DescribeVpcs, in the local region 2",
		"plan: 1 × IAM:ListRoles, in the local region 0",
		"plan: a warning that the local region does not cause: slow",
		"plan: no warning, in the local region: open",
	}, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCostIsBounded checks that the bound counts whole hours of the time limit and of the deletion.
func TestCostIsBounded(t *testing.T) {
	plan := `{"monthlyCost": {"currency": "USD", "pricesOf": "2025-01-01", "after": 730, "unpriced": ["kms-key/main"]}}`
	got, err := estimateCost(plan, 45*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	const want = "cost: about 1.00 USD an hour, at most 2.00 USD for 2 hours " +
		"(list prices of 2025-01-01 or later, without traffic and requests); no price is known for kms-key/main"
	if got.describeCost() != want {
		t.Errorf("got %s", got.describeCost())
	}
}

// TestReportIsMasked checks that no credential gets into a report.
func TestReportIsMasked(t *testing.T) {
	env := map[string]string{"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	mask := newMasker("123456789012", func(name string) string { return env[name] })
	key := "ASIA" + strings.Repeat("X", 16)
	text := fmt.Sprintf("arn:aws:iam::123456789012:role/x %s %s", key, env["AWS_SECRET_ACCESS_KEY"])
	const want = "arn:aws:iam::<account>:role/x <aws_access_key_id> <aws_secret_access_key>"
	if got := mask.hideSecrets(text); got != want {
		t.Errorf("got %s", got)
	}
}
