// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"regexp"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// discoveryStorePattern matches locations of discovery documents. S3's certificate covers no bucket with a dot in its
// name.
func discoveryStorePattern() *regexp.Regexp {
	return regexp.MustCompile(`^s3://([a-z0-9][a-z0-9-]{1,61}[a-z0-9])((?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*)$`)
}

// IssuerOf returns the issuer of service-account tokens of a cluster whose documents are in a discovery store: the
// https URL at which S3 serves that location to everybody. It is empty if the location is not valid.
func IssuerOf(discoveryStore, region, cluster string) string {
	m := discoveryStorePattern().FindStringSubmatch(discoveryStore)
	if m == nil {
		return ""
	}

	return "https://" + m[1] + ".s3." + region + "." + partition.OfRegion(region).DNSSuffix + m[2] + "/" + cluster
}

// HasPodIdentity reports whether pods of a cluster can have IAM roles of their own.
func HasPodIdentity(c v1alpha1.Cluster) bool {
	return c.Spec.ServiceAccountIssuerDiscovery.DiscoveryStore != ""
}

// ServiceAccountSubject returns the claim sub in the tokens of a service account.
func ServiceAccountSubject(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// defaultIssuerOfStore sets the issuer of a cluster with a discovery store.
func defaultIssuerOfStore(s *Set) {
	c := &s.Cluster.Spec
	issuer := IssuerOf(
		c.ServiceAccountIssuerDiscovery.DiscoveryStore,
		c.CloudProvider.AWS.Region,
		s.Cluster.Metadata.Name,
	)
	setDefaultText(&c.KubeAPIServer.ServiceAccountIssuer, issuer)
}

// bucketOf returns the bucket of an s3:// location; empty if it is none.
func bucketOf(location string) string {
	path, ok := strings.CutPrefix(location, "s3://")
	if !ok {
		return ""
	}

	bucket, _, _ := strings.Cut(path, "/")

	return bucket
}
