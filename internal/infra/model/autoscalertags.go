// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// withCloudLabels adds the group's own tags to tags. What Slipway set wins over them; the cluster's tags do not.
func (b *builder) withCloudLabels(ig v1alpha1.InstanceGroup, tags awskind.Tags) awskind.Tags {
	for k, v := range ig.Spec.CloudLabels {
		if have, set := tags[k]; !set || b.Cluster.Spec.Tags[k] == have {
			tags[k] = v
		}
	}

	return tags
}

const autoscalerTagPrefix = "k8s.io/cluster-autoscaler/"

// autoscalerTags let the cluster autoscaler find a group (its AWS provider's auto-discovery), and tell it what a node of
// a group that has none yet would be like: labels, taints, and the disk. Processors and memory it knows by the type.
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
