// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"fmt"

	"github.com/Masterminds/semver/v3"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// maxKubeletSkew is how many minor versions a kubelet may be older than the API server
// (https://kubernetes.io/releases/version-skew-policy/#kubelet).
const maxKubeletSkew = 3

// GroupVersion returns the version of Kubernetes that the machines of a group get.
func GroupVersion(c v1alpha1.Cluster, g v1alpha1.InstanceGroup) string {
	return cmp.Or(g.Spec.KubernetesVersion, c.Spec.KubernetesVersion)
}

// checkGroupVersion reports a version of a group that the version skew policy does not allow.
func (v validator) checkGroupVersion(spec v1alpha1.InstanceGroupSpec, c v1alpha1.Cluster) {
	const path = "spec.kubernetesVersion"
	text := spec.KubernetesVersion
	if text == "" || spec.Role == v1alpha1.RoleBastion {
		return
	}

	if spec.Role == v1alpha1.RoleControlPlane {
		v.errorf(path, text, "leave it out, and set it in the Cluster", "is for workers")
		return
	}

	own, err := semver.StrictNewVersion(text)
	if err != nil || own.Prerelease()+own.Metadata() != "" {
		v.errorf(path, text, "write it as "+DefaultKubernetesVersion+`, without "v"`, "is not a valid Kubernetes version")
		return
	}

	server, err := semver.StrictNewVersion(c.Spec.KubernetesVersion)
	if err != nil {
		return // reported for the Cluster, or there is none
	}

	skewed := own.Major() == server.Major() && own.Minor()+maxKubeletSkew < server.Minor()

	switch {
	case own.GreaterThan(server):
		v.errorf(path, text, "leave it out, or use an earlier version",
			"is newer than the cluster's %s: kubelets cannot be newer than the API server", server)
	case skewed || own.Major() != server.Major():
		v.errorf(path, text, fmt.Sprintf("use %d.%d or later", server.Major(), server.Minor()-maxKubeletSkew),
			"is more than %d minor versions older than the cluster's %s", maxKubeletSkew, server)
	}
}
