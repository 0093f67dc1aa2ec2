// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/manifest"
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

// autoscalerTags returns the tags by which the cluster autoscaler discovers a group, and those that describe
// a node of an empty group: labels, taints and disk. It derives CPU and memory from the instance type.
func (b *builder) autoscalerTags(ig v1alpha1.InstanceGroup) awskind.Tags {
	if !ig.Spec.Autoscale {
		return nil
	}

	out := awskind.Tags{}
	maps.Copy(out, awskind.Tags{
		manifest.AutoscalerTagPrefix + "enabled":                                   "true",
		manifest.AutoscalerTagPrefix + b.clusterName():                             "owned",
		manifest.AutoscalerTagPrefix + "node-template/resources/ephemeral-storage": strconv.Itoa(ig.Spec.RootVolume.Size) + "Gi",
		manifest.AutoscalerLabelPrefix + "slipway.dev/group":                       ig.Metadata.Name,
	})

	for k, v := range ig.Spec.NodeLabels {
		out[manifest.AutoscalerLabelPrefix+k] = v
	}

	for _, t := range ig.Spec.Taints {
		pair, effect, _ := strings.Cut(t, ":")
		_, value, _ := strings.Cut(pair, "=")
		out[manifest.AutoscalerTaintPrefix+manifest.TaintKey(t)] = value + ":" + effect
	}

	return out
}
