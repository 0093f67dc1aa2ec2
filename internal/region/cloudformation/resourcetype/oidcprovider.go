// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// oidcProviderType is AWS::IAM::OIDCProvider. Its physical ID is the ARN.
func oidcProviderType() Type {
	return Type{
		Create:      createOIDCProvider,
		FindCreated: findOIDCProvider,
		Stabilize: func(_ context.Context, req *Request) error {
			req.Attributes["Arn"] = req.PhysicalID
			return nil
		},
		Update: updateOIDCProvider,
		Delete: func(ctx context.Context, req *Request) error {
			return runOnProvider(ctx, req, "DeleteOpenIDConnectProvider", template.Object{})
		},
	}
}

// runOnProvider calls an operation on the provider of a request.
func runOnProvider(ctx context.Context, req *Request, operation string, in template.Object) error {
	in["OpenIDConnectProviderArn"] = req.PhysicalID

	return req.runOperation(ctx, "iam", operation, in)
}

func createOIDCProvider(ctx context.Context, req *Request) error {
	in := req.pickProperties("Url", "ThumbprintList")
	in["ClientIDList"] = template.ListAt(req.Properties["ClientIdList"])
	if tags := req.resourceTags(); len(tags) > 0 {
		in["Tags"] = tags
	}

	out, err := req.callOperation(ctx, "iam", "CreateOpenIDConnectProvider", in)
	if err != nil {
		return err
	}

	return req.setPhysicalID(ctx, template.ValueAt(out, "OpenIDConnectProviderArn"))
}

// findOIDCProvider looks for the provider that an interrupted creation has created: the one of the same URL with the
// tags of the resource. IAM has one provider of a URL.
func findOIDCProvider(ctx context.Context, req *Request) (bool, error) {
	list, err := req.callOperation(ctx, "iam", "ListOpenIDConnectProviders", template.Object{})
	if err != nil {
		return false, err
	}

	name := strings.TrimPrefix(req.stringProperty("Url"), "https://")

	for _, p := range template.ListAt(list, "OpenIDConnectProviderList") {
		arn := template.StringAt(p, "Arn")
		if !strings.HasSuffix(arn, ":oidc-provider/"+name) {
			continue
		}

		got, err := req.callOperation(ctx, "iam", "GetOpenIDConnectProvider", template.Object{
			"OpenIDConnectProviderArn": arn,
		})
		if err != nil {
			return false, err
		}

		have := mergeTags(nil, template.ValueAt(got, "Tags"))
		for key, value := range mergeTags(req.StackTags, req.Properties["Tags"]) {
			if have[key] != value {
				return false, nil
			}
		}

		return true, req.setPhysicalID(ctx, arn)
	}

	return false, nil
}

func updateOIDCProvider(ctx context.Context, req *Request) error {
	more, fewer := diffLists(req.OldProperties["ClientIdList"], req.Properties["ClientIdList"])
	for _, id := range more {
		if err := runOnProvider(
			ctx, req, "AddClientIDToOpenIDConnectProvider", template.Object{"ClientID": id},
		); err != nil {
			return err
		}
	}

	for _, id := range fewer {
		if err := runOnProvider(
			ctx, req, "RemoveClientIDFromOpenIDConnectProvider", template.Object{"ClientID": id},
		); err != nil {
			return err
		}
	}

	if prints := template.ListAt(req.Properties["ThumbprintList"]); req.propertyChanged("ThumbprintList") &&
		len(prints) > 0 {
		if err := runOnProvider(
			ctx, req, "UpdateOpenIDConnectProviderThumbprint", template.Object{"ThumbprintList": prints},
		); err != nil {
			return err
		}
	}

	return req.updateTags("Tags", func(tags []any) error {
		return runOnProvider(ctx, req, "TagOpenIDConnectProvider", template.Object{"Tags": tags})
	}, func(keys []any) error {
		return runOnProvider(ctx, req, "UntagOpenIDConnectProvider", template.Object{"TagKeys": keys})
	})
}
