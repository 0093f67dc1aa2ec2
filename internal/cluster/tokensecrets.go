// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// adviseOnTokenSecrets tells about a cluster of an older Slipway that its controller manager still has the key which signs
// tokens of service accounts, because somebody may rely on it. A manifest that says either way is not talked about.
func adviseOnTokenSecrets(c v1alpha1.Cluster) diag.Findings {
	var findings diag.Findings
	if c.Spec.KubeControllerManager.ServiceAccountTokenSecrets != "" {
		return findings
	}

	findings.Warnf(
		"cluster/"+c.Metadata.Name+": spec.kubeControllerManager.serviceAccountTokenSecrets",
		"",
		"set it to Disabled, unless kubectl get secrets -A --field-selector type=kubernetes.io/service-account-token "+
			"shows that programs create such Secrets; then set it to Enabled",
		"is not set, so kube-controller-manager has the key that signs tokens of service accounts, as in earlier versions",
	)

	return findings
}
