// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// karpenterLabel is the label of the objects of Karpenter that the control plane writes.
const karpenterLabel = "slipway.dev/karpenter-group"

// groupLabel is the label of Nodes with the name of their group.
const groupLabel = "slipway.dev/group"

// object is a part of a Kubernetes object.
type object = map[string]any

// BuildKarpenterObjects returns the EC2NodeClass and the NodePool of a group in a cluster with
// these names of the API. It fails if the user data needs a name that the cluster lacks.
func BuildKarpenterObjects(group string, p node.Pool, api node.APIEndpoints) (class, pool map[string]any, err error) {
	userData, ok := p.Launch.FillUserData(api)
	if !ok {
		return nil, nil, fmt.Errorf("group %s: its user data needs a name of the API that this machine does not know", group)
	}

	return buildNodeClass(group, p, userData), buildNodePool(group, p), nil
}

// buildNodeClass returns the EC2NodeClass of a group. Its user data and its image are those that
// the join endpoint demands.
func buildNodeClass(group string, p node.Pool, userData string) object {
	root := p.RootVolume
	ebs := object{
		"volumeType":          root.Type,
		"volumeSize":          strconv.Itoa(root.Size) + "Gi",
		"encrypted":           true,
		"kmsKeyID":            root.EncryptionKey,
		"deleteOnTermination": true,
	}
	if root.IOPS > 0 {
		ebs["iops"] = root.IOPS
	}

	if root.Throughput > 0 {
		ebs["throughput"] = root.Throughput
	}

	kubelet := object{
		"maxPods":        p.Kubelet.MaxPods,
		"kubeReserved":   p.Kubelet.KubeReserved,
		"systemReserved": p.Kubelet.SystemReserved,
	}
	if len(p.Kubelet.EvictionHard) > 0 {
		kubelet["evictionHard"] = p.Kubelet.EvictionHard
	}

	return object{
		"apiVersion": "karpenter.k8s.aws/v1",
		"kind":       "EC2NodeClass",
		"metadata":   object{"name": group, "labels": object{karpenterLabel: group}},
		"spec": object{
			"amiFamily":                  "Custom", // user data is passed on as it is
			"amiSelectorTerms":           []object{{"id": p.Launch.Image}},
			"subnetSelectorTerms":        selectByTags(p.Subnets),
			"securityGroupSelectorTerms": selectByTags(p.SecurityGroups),
			"instanceProfile":            p.Profile,
			"userData":                   userData,
			"tags":                       p.Tags,
			"kubelet":                    kubelet,
			"metadataOptions": object{
				"httpEndpoint":            "enabled",
				"httpProtocolIPv6":        "disabled",
				"httpPutResponseHopLimit": p.HopLimit,
				"httpTokens":              "required",
			},
			"blockDeviceMappings": []object{{"deviceName": p.RootDevice, "rootVolume": true, "ebs": ebs}},
		},
	}
}

// selectByTags returns the selector terms of resources with these tags.
func selectByTags(resources []map[string]string) []object {
	out := make([]object, 0, len(resources))
	for _, tags := range resources {
		out = append(out, object{"tags": tags})
	}

	return out
}

// buildNodePool returns the NodePool of a group. It ends machines that are empty, and replaces
// those that a rolling update has made outdated, not more at once than the limits allow. No machine
// ends because of its age.
func buildNodePool(group string, p node.Pool) object {
	labels := maps.Clone(p.NodeLabels)
	if labels == nil {
		labels = map[string]string{}
	}

	labels[groupLabel] = group
	capacity := []string{"on-demand"}
	if p.Spot {
		capacity = []string{"on-demand", "spot"}
	}

	spec := object{
		"nodeClassRef": object{"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": group},
		"expireAfter":  "Never",
		"requirements": []object{
			{"key": "kubernetes.io/arch", "operator": "In", "values": []string{p.Architecture}},
			{"key": "kubernetes.io/os", "operator": "In", "values": []string{"linux"}},
			{"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity},
			{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": slices.Sorted(slices.Values(p.MachineTypes))},
		},
	}
	if len(p.Taints) > 0 {
		spec["taints"] = buildTaints(p.Taints)
	}

	return object{
		"apiVersion": "karpenter.sh/v1",
		"kind":       "NodePool",
		"metadata":   object{"name": group, "labels": object{karpenterLabel: group}},
		"spec": object{
			"template": object{"metadata": object{"labels": labels}, "spec": spec},
			"limits":   object{"nodes": strconv.Itoa(p.Limits.Machines)},
			"disruption": object{
				"consolidationPolicy": "WhenEmpty",
				"consolidateAfter":    "1m",
				"budgets":             []object{{"nodes": p.Limits.Disrupted}},
			},
		},
	}
}

// buildTaints returns taints, each key=value:Effect, as the API has them.
func buildTaints(taints []string) []object {
	out := make([]object, 0, len(taints))
	for _, t := range taints {
		pair, effect, _ := strings.Cut(t, ":")
		key, value, _ := strings.Cut(pair, "=")
		taint := object{"key": key, "effect": effect}
		if value != "" {
			taint["value"] = value
		}

		out = append(out, taint)
	}

	return out
}
