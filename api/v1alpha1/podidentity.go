// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ServiceAccountIssuerDiscovery publishes how tokens of the cluster's service accounts are verified, so that AWS accepts
// them: pods get permissions of IAM roles of their own.
type ServiceAccountIssuerDiscovery struct {
	// DiscoveryStore is the S3 location of the OpenID Connect discovery document and of the public keys of the cluster, such
	// as s3://example-oidc/prod. Everybody can read them. 'slipway iam init-discovery' creates the bucket, which has no
	// other objects and is in the region of the cluster. The cluster is then an OpenID Connect provider in IAM. It is
	// fixed when the cluster is created, because it is part of the issuer of tokens.
	DiscoveryStore string `json:"discoveryStore,omitempty"`
}

// ClusterIAM configures IAM roles of the cluster.
type ClusterIAM struct {
	// ServiceAccountExternalPermissions are the IAM roles of service accounts. They need
	// spec.serviceAccountIssuerDiscovery.
	ServiceAccountExternalPermissions []ServiceAccountPermissions `json:"serviceAccountExternalPermissions,omitempty"`
}

// ServiceAccountPermissions is the IAM role of one service account. Only its tokens can assume the role.
type ServiceAccountPermissions struct {
	// Name of the service account.
	Name string `json:"name"`

	// Namespace of the service account.
	Namespace string `json:"namespace"`

	// AWS are the permissions.
	AWS ServiceAccountAWS `json:"aws"`
}

// ServiceAccountAWS are permissions in AWS. The permissions boundary of the machines' roles limits them as well.
type ServiceAccountAWS struct {
	// PolicyARNs are the ARNs of managed policies.
	PolicyARNs []string `json:"policyARNs,omitempty"`

	// InlinePolicy is a policy document in JSON.
	InlinePolicy string `json:"inlinePolicy,omitempty"`
}
