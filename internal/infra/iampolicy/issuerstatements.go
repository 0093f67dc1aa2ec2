// SPDX-License-Identifier: Apache-2.0

package iampolicy

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/oidcdiscovery"
)

// ProviderARN returns the ARN of the OpenID Connect provider of the cluster's issuer.
func ProviderARN(in Input) string {
	return "arn:" + in.Partition + ":iam::" + in.Account + ":oidc-provider/" + strings.TrimPrefix(in.Issuer, "https://")
}

// issuerObjectARNs returns the ARNs of the documents of the issuer.
func (s policyBuilder) issuerObjectARNs() []string {
	base := s.storeBase(s.Discovery) + "/" + s.Cluster + "/"

	return []string{base + oidcdiscovery.ConfigurationPath, base + oidcdiscovery.KeySetPath}
}

// issuerReadStatements allows reading the provider and the documents of the issuer. IAM does not restrict the list of
// providers, which has only their ARNs.
func (s policyBuilder) issuerReadStatements() []Statement {
	prefix := strings.TrimPrefix(s.Discovery.Prefix+"/", "/") + s.Cluster + "/*"

	return []Statement{
		newStatement(
			"ListProviders",
			qualifyActions("iam", "ListOpenIDConnectProviders"),
			[]string{"*"},
			nil,
		),
		newStatement(
			"ReadProvider",
			qualifyActions("iam", "GetOpenIDConnectProvider"),
			[]string{ProviderARN(s.Input)},
			nil,
		),
		newStatement("ReadIssuer", qualifyActions("s3", "GetObject"), s.issuerObjectARNs(), nil),
		newStatement(
			"ListIssuer",
			qualifyActions("s3", "ListBucket"),
			[]string{"arn:" + s.Partition + ":s3:::" + s.Discovery.Bucket},
			condition{"StringLike": {"s3:prefix": {prefix}}},
		),
	}
}

// issuerStatements allows managing the provider and the documents of the issuer of the cluster, and of no other one.
//
// They are no way to more permissions: who can replace the documents can get tokens for any service account of the
// cluster, but their roles have the same boundary as those of machines.
func (s policyBuilder) issuerStatements() []Statement {
	if s.Issuer == "" {
		return nil
	}

	return []Statement{
		newStatement(
			"ChangeProvider",
			qualifyActions(
				"iam", "AddClientIDToOpenIDConnectProvider", "CreateOpenIDConnectProvider",
				"DeleteOpenIDConnectProvider", "RemoveClientIDFromOpenIDConnectProvider", "TagOpenIDConnectProvider",
				"UntagOpenIDConnectProvider",
			),
			[]string{ProviderARN(s.Input)},
			nil,
		),
		newStatement(
			"PublishIssuer",
			qualifyActions("s3", "DeleteObject", "PutObject"),
			s.issuerObjectARNs(),
			nil,
		),
	}
}

// BuildDiscoveryInitPolicy returns the policy for 'slipway iam init-discovery' of the bucket at st. An operator needs it
// once for a bucket.
func BuildDiscoveryInitPolicy(in Input, st StoreLocation) Policy {
	return Policy{Version: policyVersion, Statement: []Statement{newStatement(
		"CreateDiscoveryBucket",
		qualifyActions(
			"s3", "CreateBucket", "GetBucketPolicy", "ListBucket", "PutBucketPolicy",
			"PutBucketPublicAccessBlock", "PutBucketVersioning", "PutEncryptionConfiguration",
		),
		[]string{"arn:" + in.Partition + ":s3:::" + st.Bucket},
		nil,
	)}}
}
