// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"regexp"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// hintForField returns what to write in place of a field that a kind does not have: the field of the other kind at that
// path, or Slipway's field for one of kops or eksctl. It returns "" if nothing is known.
func hintForField(kind, path string) string {
	if own := otherToolsFields()[kind][path]; own != "" {
		return own
	}

	if kind != v1alpha1.KindCluster && kind != v1alpha1.KindInstanceGroup {
		return ""
	}

	other := v1alpha1.KindInstanceGroup
	shape := groupShape()
	how := "slipway edit group GROUP --name CLUSTER"
	if kind == v1alpha1.KindInstanceGroup {
		other = v1alpha1.KindCluster
		shape = clusterShape()
		how = "slipway edit cluster NAME"
	}

	if hasField(shape, path) {
		return "it is a field of the " + other + ": " + how
	}

	return ""
}

// hasField reports whether a shape has the field at a path such as spec.kubelet.maxPods.
func hasField(shape any, path string) bool {
	path = regexp.MustCompile(`\[[^]]*\]`).ReplaceAllString(path, "")
	for name := range strings.SplitSeq(path, ".") {
		if items, isList := shape.([]any); isList && len(items) > 0 {
			shape = items[0]
		}

		fields, isObject := shape.(map[string]any)
		if !isObject {
			return false
		}

		member, known := fields[name]
		if !known {
			return false
		}

		shape = member
	}

	return true
}

// otherToolsFields returns what to write in place of fields of kops and eksctl, by kind and path.
func otherToolsFields() map[string]map[string]string {
	return map[string]map[string]string{
		v1alpha1.KindCluster: {
			"spec.nonMasqueradeCIDR":   "write spec.networking.podCIDR and spec.networking.serviceClusterIPRange",
			"spec.networkCIDR":         "write spec.networking.networkCIDR",
			"spec.networkID":           "write spec.networking.networkID",
			"spec.podCIDR":             "write spec.networking.podCIDR",
			"spec.subnets":             "write spec.networking.subnets",
			"spec.kubernetesApiAccess": "write spec.api.access",
			"spec.masterPublicName":    "write spec.api.publicName",
			"spec.additionalSans":      "write spec.api.additionalSANs",
			"spec.etcdClusters":        "write spec.etcd.volume; each control-plane machine has a member",
			"spec.configBase":          "write spec.configStore.base",
			"spec.cloudLabels":         "write spec.tags, or spec.cloudLabels of an InstanceGroup",
			"spec.sshPublicKey":        "write spec.sshKey with the text of the public key",
			"spec.bastion":             "write an InstanceGroup with role Bastion",
			"spec.version":             "write spec.kubernetesVersion",

			"spec.cloudControllerManager": "write spec.cloudProvider.nodeController: External",
		},
		v1alpha1.KindInstanceGroup: {
			"spec.labels":             "write spec.nodeLabels for labels of Kubernetes nodes, or spec.cloudLabels for tags in AWS",
			"spec.tags":               "write spec.cloudLabels",
			"spec.size":               "write spec.minSize and spec.maxSize",
			"spec.replicas":           "write spec.minSize and spec.maxSize",
			"spec.desiredCapacity":    "write spec.minSize and spec.maxSize",
			"spec.instanceType":       "write spec.machineType",
			"spec.zones":              "write spec.subnets with names of subnets of the Cluster",
			"spec.volumeSize":         "write spec.rootVolume.size",
			"spec.rootVolumeSize":     "write spec.rootVolume.size",
			"spec.rootVolumeType":     "write spec.rootVolume.type",
			"spec.rootVolumeIops":     "write spec.rootVolume.iops",
			"spec.sysctlParameters":   "write spec.sysctls",
			"spec.sshKeyName":         "write spec.sshKeyName of the Cluster",
			"spec.nodeTaints":         "write spec.taints",
			"spec.maxPods":            "write spec.kubelet.maxPods",
			"spec.evictionHard":       "write spec.kubelet.evictionHard",
			"spec.kubeReserved":       "write spec.kubelet.kubeReserved",
			"spec.systemReserved":     "write spec.kubelet.systemReserved",
			"spec.additionalPolicies": "write spec.iam.policies or spec.iam.inlinePolicy",
		},
	}
}
