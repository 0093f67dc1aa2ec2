// SPDX-License-Identifier: Apache-2.0

package model

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// STSAudience is the audience of tokens with which pods assume their roles: the one that AWS's SDKs and the
// webhook of EKS use.
const STSAudience = "sts.amazonaws.com"

// serviceAccountPrefix is how the names in the graph of roles of service accounts begin. Those of machines begin with the
// role of the machine.
const serviceAccountPrefix = "sa-"

// IsServiceAccountRole reports whether an address is that of the role of a service account, or of a policy of it.
func IsServiceAccountRole(addr graph.Addr) bool {
	kind, name, _ := strings.Cut(string(addr), "/")
	isRole := kind == awskind.IAMRole{}.Kind().Name || kind == awskind.IAMRolePolicy{}.Kind().Name

	return isRole && strings.HasPrefix(name, serviceAccountPrefix)
}

// ProviderARN returns the ARN of the OpenID Connect provider of an issuer, an https URL.
func ProviderARN(partition, account, issuer string) string {
	return "arn:" + partition + ":iam::" + account + ":oidc-provider/" + strings.TrimPrefix(issuer, "https://")
}

// addPodIdentity adds the OpenID Connect provider of the cluster's issuer, and the IAM role of each service account that
// the manifest names.
func (b *builder) addPodIdentity() {
	if !manifest.HasPodIdentity(b.Cluster) {
		return
	}

	kind := awskind.OIDCProvider{}.Kind()
	provider := graph.Add(b.graph, "pods", awskind.OIDCProvider{
		URL:       b.Cluster.Spec.KubeAPIServer.ServiceAccountIssuer,
		ClientIDs: []string{STSAudience},
		Tags:      b.resourceTags(kind, "pods", nil),
	})

	for _, p := range b.Cluster.Spec.IAM.ServiceAccountExternalPermissions {
		b.addServiceAccountRole(p, provider, b.MachineStore.Boundary)
	}

	if manifest.HasVPCPods(b.Cluster) {
		p := vpcCNIAccount()
		p.AWS.InlinePolicy = encodePolicy(iampolicy.BuildVPCCNIPolicy(b.Partition, b.clusterName()))
		b.addServiceAccountRole(p, provider, b.MachineStore.Boundary)
	}

	if groups := manifest.KarpenterGroups(b.Groups); len(groups) > 0 || b.KeepsKarpenter {
		p := karpenterAccount()
		p.AWS.InlinePolicy = encodePolicy(iampolicy.BuildKarpenterPolicy(karpenterInput(b, groups)))
		b.addServiceAccountRole(p, provider, karpenterBoundary(b))
	}
}

// vpcCNIAccount returns the service account of the Amazon VPC CNI, without permissions.
func vpcCNIAccount() v1alpha1.ServiceAccountPermissions {
	return v1alpha1.ServiceAccountPermissions{Namespace: v1alpha1.VPCCNINamespace, Name: v1alpha1.VPCCNIName}
}

// addServiceAccountRole adds the IAM role of a service account with a permissions boundary, and no instance profile.
func (b *builder) addServiceAccountRole(p v1alpha1.ServiceAccountPermissions, provider graph.Reference, boundary string) {
	graphName := serviceAccountRoleAddress(p)
	role := graph.Add(b.graph, graphName, awskind.IAMRole{
		Name:        ServiceAccountRoleName(b.clusterName(), b.Region, p.Namespace, p.Name),
		Path:        RolePath(b.clusterName(), b.Region),
		Description: "Pods of service account " + p.Namespace + "/" + p.Name + " of the Kubernetes cluster " + b.clusterName(),
		TrustPolicy: serviceAccountTrust(b, p),

		PermissionsBoundary: boundary,
		ManagedPolicies:     p.AWS.PolicyARNs,
		Tags:                b.resourceTags(awskind.IAMRole{}.Kind(), graphName, nil),
	}, provider)

	if document := graph.CanonicalJSON(p.AWS.InlinePolicy); document != "" {
		graph.Add(b.graph, graphName, awskind.IAMRolePolicy{Role: role, Name: "pods", Document: document})
	}
}

// maxRoleAddressName is the longest name in the graph of a service account's role, in characters. With the cluster's name it
// is the value of the tag Name, for which AWS allows 256.
const maxRoleAddressName = 215

// serviceAccountRoleAddress returns the name in the graph of the role of a service account. A hash keeps web/app-reader
// and web-app/reader apart, also in templates, where names have no dashes. It also ends a name that is too long for a tag.
func serviceAccountRoleAddress(p v1alpha1.ServiceAccountPermissions) string {
	name := serviceAccountPrefix + p.Namespace + "-" + strings.ReplaceAll(p.Name, ".", "-")
	if !strings.ContainsAny(p.Namespace+p.Name, "-.") && len(name) <= maxRoleAddressName {
		return name
	}

	sum := sha256.Sum256([]byte(p.Namespace + "/" + p.Name))
	const hash = 6

	name = name[:min(len(name), maxRoleAddressName-hash-1)]

	return name + "-" + hex.EncodeToString(sum[:])[:hash]
}

// serviceAccountTrust lets only tokens of one service account assume a role. Both conditions are needed: the subject is
// the same in every cluster, and a token for another audience may be in the hands of whoever that is.
func serviceAccountTrust(b *builder, p v1alpha1.ServiceAccountPermissions) graph.JSON {
	issuer := b.Cluster.Spec.KubeAPIServer.ServiceAccountIssuer
	key := strings.TrimPrefix(issuer, "https://")

	return policyDocument(policyStatement{
		ID:        "ServiceAccount",
		Principal: policyPrincipal{"Federated": ProviderARN(b.Partition, b.Account, issuer)},
		Actions:   []string{"sts:AssumeRoleWithWebIdentity"},
		Condition: policyCondition{"StringEquals": {
			key + ":aud": STSAudience,
			key + ":sub": manifest.ServiceAccountSubject(p.Namespace, p.Name),
		}},
	})
}
