// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// withCloudLabels adds the group's cloudLabels to tags. They override the cluster's tags, but not those of
// Slipway.
func (b *builder) withCloudLabels(ig v1alpha1.InstanceGroup, tags awskind.Tags) awskind.Tags {
	for k, v := range ig.Spec.CloudLabels {
		if have, set := tags[k]; !set || b.Cluster.Spec.Tags[k] == have {
			tags[k] = v
		}
	}

	return tags
}

const autoscalerTagPrefix = "k8s.io/cluster-autoscaler/"

// autoscalerTags returns the tags by which the cluster autoscaler discovers a group, and those that describe
// a node of an empty group: labels, taints and disk. It derives CPU and memory from the instance type.
func (b *builder) autoscalerTags(ig v1alpha1.InstanceGroup) awskind.Tags {
	if !ig.Spec.Autoscale {
		return nil
	}

	template := autoscalerTagPrefix + "node-template/"
	out := awskind.Tags{}
	maps.Copy(out, awskind.Tags{
		autoscalerTagPrefix + "enabled": "true", autoscalerTagPrefix + b.clusterName(): "owned",
		template + "resources/ephemeral-storage": strconv.Itoa(ig.Spec.RootVolume.Size) + "Gi",
		template + "label/slipway.dev/group":     ig.Metadata.Name,
	})

	for k, v := range ig.Spec.NodeLabels {
		out[template+"label/"+k] = v
	}

	for _, t := range ig.Spec.Taints {
		pair, effect, _ := strings.Cut(t, ":")
		key, value, _ := strings.Cut(pair, "=")
		out[template+"taint/"+key] = value + ":" + effect
	}

	return out
}
