// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// providerTemplate has a provider with these audiences.
func providerTemplate(url, audiences, tag string) string {
	return `{"Resources":{"Provider":{"Type":"AWS::IAM::OIDCProvider","Properties":{"Url":"` + url + `","ClientIdList":[` + audiences + `],
		"Tags":[{"Key":"k","Value":"` + tag + `"}]}}},
		"Outputs":{"Ref":{"Value":{"Ref":"Provider"}},"Arn":{"Value":{"Fn::GetAtt":["Provider","Arn"]}}}}`
}

func TestOIDCProvider(t *testing.T) {
	t.Parallel()
	r := regiontest.Start(t)
	l := labOf(t, r)
	api := iam.NewFromConfig(r.AWSConfig())
	st := l.create("pods", providerTemplate("https://oidc.example.com/demo", `"a"`, "one"))
	l.want(st, "CREATE_COMPLETE")
	arn := "arn:aws:iam::" + regiontest.AccountID + ":oidc-provider/oidc.example.com/demo"
	if l.physical("pods", "Provider") != arn || l.output(st, "Ref") != arn || l.output(st, "Arn") != arn {
		t.Errorf("the provider is %s, its outputs are %s and %s", l.physical("pods", "Provider"), l.output(st, "Ref"), l.output(st, "Arn"))
	}

	l.want(l.update("pods", providerTemplate("https://oidc.example.com/demo", `"b","c"`, "two")), "UPDATE_COMPLETE")
	got := must[*iam.GetOpenIDConnectProviderOutput](l)(api.GetOpenIDConnectProvider(l.ctx(), &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: &arn}))
	slices.Sort(got.ClientIDList)
	if diff := cmp.Diff([]string{"b", "c"}, got.ClientIDList); diff != "" {
		t.Errorf("audiences (-want +got):\n%s", diff)
	}
	tags := map[string]string{}
	for _, tag := range got.Tags {
		tags[*tag.Key] = *tag.Value
	}
	if tags["k"] != "two" || tags["aws:cloudformation:logical-id"] != "" && tags["aws:cloudformation:logical-id"] != "Provider" {
		t.Errorf("tags %v", tags)
	}

	// Another URL is another provider.
	l.want(l.update("pods", providerTemplate("https://oidc.example.com/other", `"b"`, "two")), "UPDATE_COMPLETE")
	if now := l.physical("pods", "Provider"); !strings.HasSuffix(now, "/oidc.example.com/other") {
		t.Errorf("the provider is %s", now)
	}
	list := must[*iam.ListOpenIDConnectProvidersOutput](l)(api.ListOpenIDConnectProviders(l.ctx(), &iam.ListOpenIDConnectProvidersInput{}))
	if len(list.OpenIDConnectProviderList) != 1 {
		t.Errorf("%d providers, want 1", len(list.OpenIDConnectProviderList))
	}
	l.want(l.remove("pods"), "DELETE_COMPLETE")
	list = must[*iam.ListOpenIDConnectProvidersOutput](l)(api.ListOpenIDConnectProviders(l.ctx(), &iam.ListOpenIDConnectProvidersInput{}))
	if len(list.OpenIDConnectProviderList) != 0 {
		t.Errorf("%d providers are left", len(list.OpenIDConnectProviderList))
	}
}
