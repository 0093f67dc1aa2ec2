// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// checkNodeController checks who keeps the nodes. Without credentials, the cloud controller manager would initialize none, and no
// pod of the cluster would be scheduled.
func checkNodeController(v validator, c v1alpha1.Cluster) {
	const at = "spec.cloudProvider.nodeController"
	who := c.Spec.CloudProvider.NodeController
	if who == "" {
		return
	}

	v.checkChoice(at, who, v1alpha1.NodeControllerAgent, v1alpha1.NodeControllerExternal)
	if who != v1alpha1.NodeControllerExternal {
		return
	}

	if !HasPodIdentity(c) {
		v.errorf(at, who, "set spec.serviceAccountIssuerDiscovery.discoveryStore when you create a cluster",
			"needs a discovery store: the cloud controller manager gets its credentials as a pod")

		return
	}

	isController := func(p v1alpha1.ServiceAccountPermissions) bool {
		return p.Namespace == v1alpha1.CloudControllerNamespace && p.Name == v1alpha1.CloudControllerName
	}
	if !slices.ContainsFunc(c.Spec.IAM.ServiceAccountExternalPermissions, isController) {
		v.errorf(at, who, "create it first: slipway iam service-account create "+v1alpha1.CloudControllerName+
			" -n "+v1alpha1.CloudControllerNamespace+" --policy-file …",
			"needs an IAM role for %s/%s in spec.iam.serviceAccountExternalPermissions",
			v1alpha1.CloudControllerNamespace, v1alpha1.CloudControllerName)
	}
}
