// SPDX-License-Identifier: Apache-2.0

package iam_test

import (
	"strings"
	"testing"
	"time"

	awsiam "github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/google/go-cmp/cmp"
)

func TestOpenIDConnectProviders(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	_, c := open(t, dir, now)
	print := strings.Repeat("ab", 20)
	made, err := c.CreateOpenIDConnectProvider(t.Context(), &awsiam.CreateOpenIDConnectProviderInput{
		Url: new("https://oidc.example.com/demo"), ClientIDList: []string{"sts.amazonaws.com"}, ThumbprintList: []string{strings.ToUpper(print)},
		Tags: []types.Tag{{Key: new("k"), Value: new("v")}},
	})
	if err != nil || *made.OpenIDConnectProviderArn != "arn:aws:iam::000000000000:oidc-provider/oidc.example.com/demo" {
		t.Fatalf("%+v, %v", made, err)
	}
	arn := made.OpenIDConnectProviderArn
	for _, err := range []error{
		second(c.AddClientIDToOpenIDConnectProvider(t.Context(), &awsiam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: new("b")})),
		second(c.AddClientIDToOpenIDConnectProvider(t.Context(), &awsiam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: new("b")})),
		second(c.RemoveClientIDFromOpenIDConnectProvider(t.Context(), &awsiam.RemoveClientIDFromOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: new("none")})),
		second(c.TagOpenIDConnectProvider(t.Context(), &awsiam.TagOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, Tags: []types.Tag{{Key: new("l"), Value: new("w")}}})),
		second(c.UntagOpenIDConnectProvider(t.Context(), &awsiam.UntagOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, TagKeys: []string{"k"}})),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	_, c = open(t, dir, now) // the state survives the process
	got, err := c.GetOpenIDConnectProvider(t.Context(), &awsiam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn})
	if err != nil || *got.Url != "oidc.example.com/demo" || !cmp.Equal(got.ClientIDList, []string{"sts.amazonaws.com", "b"}) ||
		!cmp.Equal(got.ThumbprintList, []string{print}) || len(got.Tags) != 1 || *got.Tags[0].Key != "l" {
		t.Fatalf("%+v, %v", got, err)
	}
	list, err := c.ListOpenIDConnectProviders(t.Context(), &awsiam.ListOpenIDConnectProvidersInput{})
	tags, err2 := c.ListOpenIDConnectProviderTags(t.Context(), &awsiam.ListOpenIDConnectProviderTagsInput{OpenIDConnectProviderArn: arn})
	if err != nil || err2 != nil || len(list.OpenIDConnectProviderList) != 1 || *list.OpenIDConnectProviderList[0].Arn != *arn || len(tags.Tags) != 1 {
		t.Errorf("%+v, %+v, %v, %v", list, tags, err, err2)
	}
	if _, err := c.DeleteOpenIDConnectProvider(t.Context(), &awsiam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn}); err != nil {
		t.Fatal(err)
	}
	_, err = c.GetOpenIDConnectProvider(t.Context(), &awsiam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn})
	if code(err) != "NoSuchEntity" {
		t.Errorf("a deleted provider: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestOpenIDConnectProvidersAreChecked(t *testing.T) {
	t.Parallel()
	_, c := fresh(t)
	base := awsiam.CreateOpenIDConnectProviderInput{Url: new("https://oidc.example.com")}
	if _, err := c.CreateOpenIDConnectProvider(t.Context(), &base); err != nil {
		t.Fatal(err)
	}
	got, err := c.GetOpenIDConnectProvider(t.Context(), &awsiam.GetOpenIDConnectProviderInput{
		OpenIDConnectProviderArn: new("arn:aws:iam::000000000000:oidc-provider/oidc.example.com"),
	})
	if err != nil || len(got.ThumbprintList) != 1 || len(got.ThumbprintList[0]) != 40 {
		t.Errorf("a provider without thumbprints: %+v, %v", got, err)
	}
	for name, tt := range map[string]struct {
		change func(*awsiam.CreateOpenIDConnectProviderInput)
		want   string
	}{
		"the same URL": {func(*awsiam.CreateOpenIDConnectProviderInput) {}, "EntityAlreadyExists"},
		"http":         {func(in *awsiam.CreateOpenIDConnectProviderInput) { in.Url = new("http://a.example.com") }, "ValidationError"},
		"a query":      {func(in *awsiam.CreateOpenIDConnectProviderInput) { in.Url = new("https://a.example.com?x=1") }, "ValidationError"},
		"a port":       {func(in *awsiam.CreateOpenIDConnectProviderInput) { in.Url = new("https://a.example.com:8443") }, "ValidationError"},
		"no scheme":    {func(in *awsiam.CreateOpenIDConnectProviderInput) { in.Url = new("a.example.com") }, "ValidationError"},
		"a long URL": {func(in *awsiam.CreateOpenIDConnectProviderInput) {
			in.Url = new("https://a.example.com/" + strings.Repeat("a", 234))
		}, "ValidationError"},
		"a short thumbprint": {func(in *awsiam.CreateOpenIDConnectProviderInput) { in.ThumbprintList = []string{"abcd"} }, "ValidationError"},
		"six thumbprints": {func(in *awsiam.CreateOpenIDConnectProviderInput) {
			in.ThumbprintList = strings.Fields(strings.Repeat(strings.Repeat("a", 40)+" ", 6))
		}, "InvalidInput"},
		"101 client IDs": {func(in *awsiam.CreateOpenIDConnectProviderInput) {
			in.ClientIDList = strings.Fields(strings.Repeat("a ", 101))
		}, "LimitExceeded"},
	} {
		in := base
		tt.change(&in)
		if _, err := c.CreateOpenIDConnectProvider(t.Context(), &in); code(err) != tt.want {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}
