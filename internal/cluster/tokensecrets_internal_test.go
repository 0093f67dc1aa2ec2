// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// TestOldClustersAreAdvised: the plan of a cluster whose manifest says nothing about the key in the controller manager names the
// field, and is quiet once it says something.
func TestOldClustersAreAdvised(t *testing.T) {
	t.Parallel()

	for setting, advises := range map[string]bool{"": true, v1alpha1.TokenSecretsDisabled: false, v1alpha1.TokenSecretsEnabled: false} {
		c := v1alpha1.Cluster{}
		c.Metadata.Name = "demo"
		c.Spec.KubeControllerManager.ServiceAccountTokenSecrets = setting
		got := adviseOnTokenSecrets(c)
		if (len(got) > 0) != advises || got.Err() != nil {
			t.Errorf("%q: %v", setting, got)
		}

		for _, f := range got {
			if text := f.String(); !strings.Contains(text, "cluster/demo") || !strings.Contains(text, "serviceAccountTokenSecrets") {
				t.Errorf("%q: %s", setting, text)
			}
		}
	}
}
