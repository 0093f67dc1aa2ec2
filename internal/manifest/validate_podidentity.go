// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

const (
	maxServiceAccountRoles = 100
	maxIssuerLength        = 255 // of IAM's OpenID Connect providers
)

// podIdentityValidator checks the IAM roles of service accounts.
type podIdentityValidator struct{ validator }

// checkPodIdentity checks where the issuer's documents are, and the roles of service accounts.
func (v podIdentityValidator) checkPodIdentity(c v1alpha1.Cluster) {
	const path = "spec.serviceAccountIssuerDiscovery.discoveryStore"
	base := c.Spec.ServiceAccountIssuerDiscovery.DiscoveryStore
	issuer := IssuerOf(base, c.Spec.CloudProvider.AWS.Region, c.Metadata.Name)

	switch {
	case base == "":
	case issuer == "":
		v.errorf(path, base, "write it as s3://example-oidc/prod, with a bucket without dots",
			"is not a valid s3:// URL of a bucket that everybody can read over TLS")
	case bucketOf(base) == bucketOf(c.Spec.ConfigStore.Base):
		v.errorf(path, base, "use a bucket of its own: slipway iam init-discovery s3://…",
			"is in the bucket of spec.configStore.base, where machines write")
	case len(issuer) > maxIssuerLength:
		v.errorf(path, base, "use a shorter prefix", "makes an issuer of more than %d characters", maxIssuerLength)
	case c.Spec.KubeAPIServer.ServiceAccountIssuer != issuer:
		v.errorf("spec.kubeAPIServer.serviceAccountIssuer", c.Spec.KubeAPIServer.ServiceAccountIssuer,
			"leave it out, or write "+issuer, "is not where the documents of the discovery store can be read")
	}

	v.checkServiceAccountRoles(c)
}

func (v podIdentityValidator) checkServiceAccountRoles(c v1alpha1.Cluster) {
	const path = "spec.iam.serviceAccountExternalPermissions"
	list := c.Spec.IAM.ServiceAccountExternalPermissions
	if len(list) > 0 && !HasPodIdentity(c) {
		v.errorf(path, "", "set spec.serviceAccountIssuerDiscovery.discoveryStore when you create a cluster",
			"needs a discovery store: AWS cannot verify tokens of this cluster")
	}

	if len(list) > maxServiceAccountRoles {
		v.errorf(path, strconv.Itoa(len(list)), "use roles that you manage yourself for some of them",
			"exceeds %d roles", maxServiceAccountRoles)
	}

	seen := map[string]int{}

	for i, p := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		v.checkServiceAccountName(at, p)
		v.checkUnique(at, p.Namespace+"/"+p.Name, seen, i, "duplicates serviceAccountExternalPermissions[%d]")
		if len(p.AWS.PolicyARNs) == 0 && p.AWS.InlinePolicy == "" {
			v.errorf(at+".aws", "", "set policyARNs or inlinePolicy", "allows nothing")
		}

		v.checkPermissions(at+".aws.policyARNs", p.AWS.PolicyARNs, at+".aws.inlinePolicy", p.AWS.InlinePolicy)
	}
}

func (v podIdentityValidator) checkServiceAccountName(at string, p v1alpha1.ServiceAccountPermissions) {
	if len(validation.IsDNS1123Label(p.Namespace)) > 0 {
		v.errorf(at+".namespace", p.Namespace, "write it as kubectl get namespaces prints it",
			"is not a valid name of a namespace")
	}

	if len(validation.IsDNS1123Subdomain(p.Name)) > 0 {
		v.errorf(at+".name", p.Name, "write it as kubectl get serviceaccounts prints it",
			"is not a valid name of a service account")
	}
}
