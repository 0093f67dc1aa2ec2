// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestNodeController: without credentials the cloud controller manager would initialize no node, so such a cluster is refused.
func TestNodeController(t *testing.T) {
	role := func(namespace, name string) v1alpha1.ServiceAccountPermissions {
		return v1alpha1.ServiceAccountPermissions{
			Namespace: namespace, Name: name, AWS: v1alpha1.ServiceAccountAWS{InlinePolicy: `{"Version":"2012-10-17","Statement":[]}`},
		}
	}
	roles := func(c *v1alpha1.ClusterSpec, all ...v1alpha1.ServiceAccountPermissions) {
		c.IAM.ServiceAccountExternalPermissions = all
	}
	own := role("kube-system", "aws-cloud-controller-manager")
	for name, c := range map[string]struct {
		value, want string
		change      func(*v1alpha1.ClusterSpec)
	}{
		"unset":    {"", "", func(*v1alpha1.ClusterSpec) {}},
		"agent":    {"Agent", "", func(*v1alpha1.ClusterSpec) {}},
		"external": {"External", "", func(c *v1alpha1.ClusterSpec) { roles(c, role("shop", "reader"), own) }},
		"misspelled": {
			"external", `spec.cloudProvider.nodeController "external": is not one of Agent, External (did you mean External?)`,
			func(c *v1alpha1.ClusterSpec) { roles(c, own) },
		},
		"no store": {
			"External", `spec.cloudProvider.nodeController "External": needs a discovery store: the cloud controller manager gets its`,
			func(c *v1alpha1.ClusterSpec) {
				roles(c)
				c.KubeAPIServer.ServiceAccountIssuer = ""
				c.ServiceAccountIssuerDiscovery.DiscoveryStore = ""
			},
		},
		"no role": {
			"External", `spec.cloudProvider.nodeController "External": needs an IAM role for kube-system/aws-cloud-controller-manager in`,
			func(c *v1alpha1.ClusterSpec) { roles(c, role("shop", "aws-cloud-controller-manager")) },
		},
	} {
		set := podSet(t, func(spec *v1alpha1.ClusterSpec) {
			spec.CloudProvider.NodeController = c.value
			c.change(spec)
		})
		err := manifest.Validate(set).Err()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
