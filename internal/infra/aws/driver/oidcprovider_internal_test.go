// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// fakeProviders is IAM with some providers, by the URL without its scheme. Calls that the tests do not expect panic.
type fakeProviders struct {
	oidcProviderAPI

	tags   map[string]awskind.Tags
	denied bool
	calls  []string
}

const providerPrefix = "arn:aws:iam::123456789012:oidc-provider/"

func (f *fakeProviders) ListOpenIDConnectProviders(
	context.Context, *iam.ListOpenIDConnectProvidersInput, ...func(*iam.Options),
) (*iam.ListOpenIDConnectProvidersOutput, error) {
	f.calls = append(f.calls, "list")
	if f.denied {
		return nil, &smithy.GenericAPIError{Code: "AccessDenied"}
	}
	out := &iam.ListOpenIDConnectProvidersOutput{}
	for name := range f.tags {
		out.OpenIDConnectProviderList = append(out.OpenIDConnectProviderList, iamtypes.OpenIDConnectProviderListEntry{Arn: new(providerPrefix + name)})
	}
	return out, nil
}

func (f *fakeProviders) GetOpenIDConnectProvider(
	_ context.Context, in *iam.GetOpenIDConnectProviderInput, _ ...func(*iam.Options),
) (*iam.GetOpenIDConnectProviderOutput, error) {
	name := strings.TrimPrefix(*in.OpenIDConnectProviderArn, providerPrefix)
	tags, ok := f.tags[name]
	if !ok || name == "gone.example/demo" {
		return nil, &iamtypes.NoSuchEntityException{}
	}
	return &iam.GetOpenIDConnectProviderOutput{Url: &name, ClientIDList: []string{"b", "a"}, Tags: toIAMTags(tags)}, nil
}

func (f *fakeProviders) CreateOpenIDConnectProvider(
	context.Context, *iam.CreateOpenIDConnectProviderInput, ...func(*iam.Options),
) (*iam.CreateOpenIDConnectProviderOutput, error) {
	return nil, &iamtypes.EntityAlreadyExistsException{}
}

func (f *fakeProviders) AddClientIDToOpenIDConnectProvider(
	_ context.Context, in *iam.AddClientIDToOpenIDConnectProviderInput, _ ...func(*iam.Options),
) (*iam.AddClientIDToOpenIDConnectProviderOutput, error) {
	f.calls = append(f.calls, "add "+*in.ClientID)
	return nil, nil
}

func (f *fakeProviders) RemoveClientIDFromOpenIDConnectProvider(
	_ context.Context, in *iam.RemoveClientIDFromOpenIDConnectProviderInput, _ ...func(*iam.Options),
) (*iam.RemoveClientIDFromOpenIDConnectProviderOutput, error) {
	f.calls = append(f.calls, "remove "+*in.ClientID)
	return nil, nil
}

// newProviderCloud returns a cloud of the cluster demo that has no drivers but that of providers.
func newProviderCloud(f *fakeProviders) *Cloud {
	c := &Cloud{scope: Scope{Cluster: "demo"}, kinds: map[string]untypedDriver{}}
	registerOIDCProviders(c, f, c.scope)
	return c
}

func ownTags(cluster, id string) awskind.Tags {
	return awskind.Tags{awskind.TagCluster: cluster, awskind.TagClusterID: id, awskind.TagAddress: "iam-oidc-provider/pods"}
}

// TestProvidersAreReadIfNeeded: a cluster without roles of pods needs no call, and the providers of others are not its own.
func TestProvidersAreReadIfNeeded(t *testing.T) {
	f := &fakeProviders{tags: map[string]awskind.Tags{
		"oidc.example/demo": ownTags("demo", "1"), "oidc.example/other": ownTags("demo", "1"), "oidc.example/x-demo": ownTags("demo", "1"),
		"foreign.example/demo": ownTags("other", "2"), "untagged.example/demo": nil, "gone.example/demo": nil,
	}}
	c := newProviderCloud(f)
	if found, err := c.Read(t.Context()); err != nil || len(found) > 0 || len(f.calls) > 0 {
		t.Errorf("without FindProviders: %v, %v after calls %v", found, err, f.calls)
	}
	for _, known := range []bool{true, false} {
		c.FindProviders(known)
		found, err := c.Read(t.Context())
		if err != nil || len(found) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		want := awskind.OIDCProvider{URL: "https://oidc.example/demo", ClientIDs: []string{"a", "b"}, Tags: ownTags("demo", "1")}
		if diff := cmp.Diff(want, found[0].Resource); diff != "" || found[0].ID != providerPrefix+"oidc.example/demo" {
			t.Errorf("%s is (-want +got)\n%s", found[0].ID, diff)
		}
	}
}

// TestProvidersOfALostCluster: whoever may not list providers can delete a cluster whose manifests are lost. If the
// manifest names an issuer, the call is needed.
func TestProvidersOfALostCluster(t *testing.T) {
	c := newProviderCloud(&fakeProviders{denied: true})
	c.FindProviders(false)
	if found, err := c.Read(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("a lost manifest: %v, %v", found, err)
	}
	c.FindProviders(true)
	if _, err := c.Read(t.Context()); plan.ErrorClassOf(err) != plan.AccessDenied {
		t.Errorf("a manifest with an issuer: %v", err)
	}
}

// TestProviderThatExists: a provider that an interrupted run created is taken and changed; that of another cluster is not.
func TestProviderThatExists(t *testing.T) {
	for id, taken := range map[string]bool{"1": true, "2": false} {
		f := &fakeProviders{tags: map[string]awskind.Tags{"oidc.example/demo": ownTags("demo", id)}}
		want := awskind.OIDCProvider{URL: "https://oidc.example/demo", ClientIDs: []string{"a", "c"}, Tags: ownTags("demo", "1")}
		result, err := newProviderCloud(f).Create(t.Context(), plan.Task{Step: plan.Step{Kind: want.Kind().Name}, Desired: want})
		if taken != (err == nil) || taken != (result.ID == providerPrefix+"oidc.example/demo") {
			t.Errorf("id %s: %+v, %v", id, result, err)
		}
		if !taken && plan.ErrorClassOf(err) != plan.AlreadyExists {
			t.Errorf("id %s: %v", id, err)
		}
		if changed := slices.Contains(f.calls, "add c") && slices.Contains(f.calls, "remove b"); changed != taken {
			t.Errorf("id %s: calls %v", id, f.calls)
		}
	}
}
