// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type oidcProviderAPI interface {
	ListOpenIDConnectProviders(
		context.Context,
		*iam.ListOpenIDConnectProvidersInput,
		...func(*iam.Options),
	) (*iam.ListOpenIDConnectProvidersOutput, error)
	GetOpenIDConnectProvider(
		context.Context,
		*iam.GetOpenIDConnectProviderInput,
		...func(*iam.Options),
	) (*iam.GetOpenIDConnectProviderOutput, error)
	CreateOpenIDConnectProvider(
		context.Context,
		*iam.CreateOpenIDConnectProviderInput,
		...func(*iam.Options),
	) (*iam.CreateOpenIDConnectProviderOutput, error)
	DeleteOpenIDConnectProvider(
		context.Context,
		*iam.DeleteOpenIDConnectProviderInput,
		...func(*iam.Options),
	) (*iam.DeleteOpenIDConnectProviderOutput, error)
	oidcProviderContentsAPI
}

// oidcProviderContentsAPI changes the audiences and the tags of providers.
type oidcProviderContentsAPI interface {
	AddClientIDToOpenIDConnectProvider(
		context.Context,
		*iam.AddClientIDToOpenIDConnectProviderInput,
		...func(*iam.Options),
	) (*iam.AddClientIDToOpenIDConnectProviderOutput, error)
	RemoveClientIDFromOpenIDConnectProvider(
		context.Context,
		*iam.RemoveClientIDFromOpenIDConnectProviderInput,
		...func(*iam.Options),
	) (*iam.RemoveClientIDFromOpenIDConnectProviderOutput, error)
	TagOpenIDConnectProvider(
		context.Context,
		*iam.TagOpenIDConnectProviderInput,
		...func(*iam.Options),
	) (*iam.TagOpenIDConnectProviderOutput, error)
	UntagOpenIDConnectProvider(
		context.Context,
		*iam.UntagOpenIDConnectProviderInput,
		...func(*iam.Options),
	) (*iam.UntagOpenIDConnectProviderOutput, error)
}

// providerSearch is whether [Cloud.Read] reads OpenID Connect providers.
type providerSearch int

const (
	// noProviders: the cluster has none.
	noProviders providerSearch = iota
	// findProviders: the cluster may have one.
	findProviders
	// tryProviders: it is not known whether the cluster has one. A caller who may not list providers has none.
	tryProviders
)

// FindProviders makes [Cloud.Read] read the OpenID Connect providers of issuers that end with the name of the cluster.
// If known is false, the manifests are lost: a caller who may not list providers is then assumed to have none. Call it
// before Read.
func (c *Cloud) FindProviders(known bool) {
	c.providers = findProviders
	if !known {
		c.providers = tryProviders
	}
}

// registerOIDCProviders registers the driver of OpenID Connect providers. IAM lists only their ARNs, which end with the
// URL of the issuer. The last part of the URL of a cluster's issuer is the name of the cluster.
func registerOIDCProviders(c *Cloud, api oidcProviderAPI, scope Scope) {
	c.addReader(func(ctx context.Context) ([]plan.ActualResource, error) {
		if c.providers == noProviders {
			return nil, nil
		}

		found, err := readProviders(ctx, api, scope)
		if c.providers == tryProviders && plan.ErrorClassOf(err) == plan.AccessDenied {
			return nil, nil
		}

		return found, err
	})

	registerDriver(c, driver[awskind.OIDCProvider]{
		create: func(ctx context.Context, t task[awskind.OIDCProvider]) (plan.StepResult, error) {
			return createProvider(ctx, api, t, scope)
		},
		update: func(ctx context.Context, t task[awskind.OIDCProvider]) (plan.StepResult, error) {
			return keepIdentity(t), updateProvider(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.OIDCProvider]) error {
			in := &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: &t.id}
			_, err := api.DeleteOpenIDConnectProvider(ctx, in)

			return transport.Wrap(err, "delete")
		},
	})
}

// readProviders returns the providers of issuers that end with the name of the cluster. The caller checks the tags.
func readProviders(ctx context.Context, api oidcProviderAPI, scope Scope) ([]plan.ActualResource, error) {
	list, err := api.ListOpenIDConnectProviders(ctx, &iam.ListOpenIDConnectProvidersInput{})
	if err != nil {
		return nil, transport.Wrap(err, "list OpenID Connect providers")
	}

	var arns []string
	for _, p := range list.OpenIDConnectProviderList {
		if arn := aws.ToString(p.Arn); strings.HasSuffix(arn, "/"+scope.Cluster) {
			arns = append(arns, arn)
		}
	}

	return readEach(arns, func(arn string) ([]plan.ActualResource, error) {
		found, err := readProvider(ctx, api, arn)
		if plan.ErrorClassOf(err) == plan.NotFound { // it was deleted since it was listed
			return nil, nil
		}

		return []plan.ActualResource{found}, err
	})
}

func readProvider(ctx context.Context, api oidcProviderAPI, arn string) (plan.ActualResource, error) {
	out, err := api.GetOpenIDConnectProvider(ctx, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: &arn})
	if err != nil {
		return plan.ActualResource{}, transport.Wrap(err, "read OpenID Connect provider %s", arn)
	}

	r := awskind.OIDCProvider{
		URL:       "https://" + strings.TrimPrefix(aws.ToString(out.Url), "https://"), // IAM leaves the scheme out
		ClientIDs: slices.Sorted(slices.Values(out.ClientIDList)),
		Tags:      fromIAMTags(out.Tags),
	}

	return newActual(&arn, r.Tags, r), nil
}

// createProvider creates a provider. If one of its URL exists already and belongs to the cluster, it is updated: an
// earlier run created it, and IAM did not list it yet when the plan was made.
func createProvider(
	ctx context.Context,
	api oidcProviderAPI,
	t task[awskind.OIDCProvider],
	scope Scope,
) (plan.StepResult, error) {
	out, err := api.CreateOpenIDConnectProvider(ctx, &iam.CreateOpenIDConnectProviderInput{
		Url:          &t.want.URL,
		ClientIDList: t.want.ClientIDs,
		Tags:         toIAMTags(t.want.Tags),
	})
	if err = transport.Wrap(err, "create an OpenID Connect provider for %s", t.want.URL); err == nil {
		return plan.StepResult{ID: aws.ToString(out.OpenIDConnectProviderArn)}, nil
	}

	if plan.ErrorClassOf(err) != plan.AlreadyExists {
		return plan.StepResult{}, err
	}

	found, readErr := readProviders(ctx, api, scope)
	if readErr != nil {
		return plan.StepResult{}, readErr
	}

	for _, f := range found {
		have, ok := f.Resource.(awskind.OIDCProvider)
		if !ok || have.URL != t.want.URL || have.Tags[awskind.TagClusterID] != t.want.Tags[awskind.TagClusterID] {
			continue
		}

		t.id = f.ID
		t.have = have

		return keepIdentity(t), updateProvider(ctx, api, t)
	}

	return plan.StepResult{}, err
}

// updateProvider adds and removes audiences and tags.
func updateProvider(ctx context.Context, api oidcProviderContentsAPI, t task[awskind.OIDCProvider]) error {
	add, remove := diffLists(t.want.ClientIDs, t.have.ClientIDs)
	for _, id := range add {
		in := &iam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: &t.id, ClientID: &id}
		if _, err := api.AddClientIDToOpenIDConnectProvider(ctx, in); err != nil {
			return transport.Wrap(err, "add audience %s to %s", id, t.id)
		}
	}

	for _, id := range remove {
		in := &iam.RemoveClientIDFromOpenIDConnectProviderInput{OpenIDConnectProviderArn: &t.id, ClientID: &id}
		if _, err := api.RemoveClientIDFromOpenIDConnectProvider(ctx, in); err != nil {
			return transport.Wrap(err, "remove audience %s from %s", id, t.id)
		}
	}

	set, unset := diffTags(t.want.Tags, t.have.Tags)
	if len(set) > 0 {
		in := &iam.TagOpenIDConnectProviderInput{OpenIDConnectProviderArn: &t.id, Tags: toIAMTags(set)}
		if _, err := api.TagOpenIDConnectProvider(ctx, in); err != nil {
			return transport.Wrap(err, "tag %s", t.id)
		}
	}

	if len(unset) > 0 {
		in := &iam.UntagOpenIDConnectProviderInput{OpenIDConnectProviderArn: &t.id, TagKeys: unset}
		if _, err := api.UntagOpenIDConnectProvider(ctx, in); err != nil {
			return transport.Wrap(err, "untag %s", t.id)
		}
	}

	return nil
}
