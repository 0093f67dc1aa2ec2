// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// OIDCProvider is an OpenID Connect provider of IAM: an issuer of tokens that roles of the account can trust. Its
// identity is its ARN. IAM fills in the thumbprints of the issuer's certificate, and does not use them if a public
// authority signed that certificate, as those of S3.
type OIDCProvider struct {
	// URL of the issuer, as in the claim iss of its tokens
	URL string `aws:"Url,immutable" tf:"url"`
	// ClientIDs are the audiences of the tokens that IAM accepts.
	ClientIDs []string `aws:"ClientIdList,always,set" tf:"client_id_list"`
	Tags      Tags     `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (OIDCProvider) Kind() graph.Kind {
	return graph.Kind{
		Name:           "iam-oidc-provider",
		Terraform:      "aws_iam_openid_connect_provider",
		CloudFormation: "AWS::IAM::OIDCProvider",
		Lifecycle: graph.Lifecycle{
			Replacement: graph.ForbidReplacement,
			ForbiddenHint: "keep it: running pods have tokens of this issuer; create another cluster to use " +
				"another one",
		},
	}
}
