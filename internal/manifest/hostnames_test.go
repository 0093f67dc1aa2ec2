// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestHostnamesOfNewClusters: new clusters name machines by their instance ids; existing ones keep what they have, also if
// the file that they were created from does not say it.
func TestHostnamesOfNewClusters(t *testing.T) {
	const byResource, byAddress = v1alpha1.HostnamesByResource, v1alpha1.HostnamesByAddress
	of := func(s manifest.Set) string { return s.Cluster.Spec.Networking.Hostnames }
	set, _ := manifest.NewSet("demo", threeZones(), manifest.NewSetOptions{})
	created := manifest.DefaultNew(set)
	if got := of(created); got != byResource {
		t.Errorf("a new cluster has hostnames %q", got)
	}
	if got := of(manifest.Default(set)); got != "" {
		t.Errorf("an existing cluster gets hostnames %q", got)
	}
	set.Cluster.Spec.Networking.Hostnames = byAddress
	if got := of(manifest.DefaultNew(set)); got != byAddress {
		t.Errorf("the manifest of a new cluster says %s, and becomes %q", byAddress, got)
	}

	for _, c := range []struct{ before, given, want string }{
		{"", "", ""},
		{"", byResource, byResource},
		{byResource, "", byResource},
		{byResource, byAddress, byAddress},
	} {
		before, given := set.Cluster, set.Cluster
		before.Spec.Networking.Hostnames = c.before
		given.Spec.Networking.Hostnames = c.given
		if got := manifest.KeepNew(given, before).Spec.Networking.Hostnames; got != c.want {
			t.Errorf("%q changed by %q is %q, want %q", c.before, c.given, got, c.want)
		}
	}

	created.Cluster.Spec.Networking.Hostnames = "resource-name"
	err := manifest.Validate(created).Err()
	if err == nil || !strings.Contains(err.Error(), "spec.networking.hostnames") {
		t.Errorf("hostnames resource-name: %v", err)
	}
}

// TestTokenSecretsOfNewClusters: new clusters have no long-lived tokens of service accounts; existing ones keep what they
// have, since somebody may rely on it.
func TestTokenSecretsOfNewClusters(t *testing.T) {
	of := func(s manifest.Set) string { return s.Cluster.Spec.KubeControllerManager.ServiceAccountTokenSecrets }
	set, _ := manifest.NewSet("demo", threeZones(), manifest.NewSetOptions{})
	if got := of(manifest.DefaultNew(set)); got != v1alpha1.TokenSecretsDisabled {
		t.Errorf("a new cluster has serviceAccountTokenSecrets %q", got)
	}
	if got := of(manifest.Default(set)); got != "" {
		t.Errorf("an existing cluster gets serviceAccountTokenSecrets %q", got)
	}
	before := set.Cluster
	before.Spec.KubeControllerManager.ServiceAccountTokenSecrets = v1alpha1.TokenSecretsDisabled
	if got := manifest.KeepNew(set.Cluster, before).Spec.KubeControllerManager.ServiceAccountTokenSecrets; got != v1alpha1.TokenSecretsDisabled {
		t.Errorf("a file without the field changes it to %q", got)
	}
	set.Cluster.Spec.KubeControllerManager.ServiceAccountTokenSecrets = v1alpha1.TokenSecretsEnabled
	if got := of(manifest.DefaultNew(set)); got != v1alpha1.TokenSecretsEnabled {
		t.Errorf("the manifest of a new cluster says Enabled, and becomes %q", got)
	}
	if got := manifest.KeepNew(set.Cluster, before).Spec.KubeControllerManager.ServiceAccountTokenSecrets; got != v1alpha1.TokenSecretsEnabled {
		t.Errorf("an edit to Enabled becomes %q", got)
	}
}
