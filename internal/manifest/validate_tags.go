// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// The prefixes of the tags of an Auto Scaling group that the cluster autoscaler reads.
const (
	// AutoscalerTagPrefix begins all of them.
	AutoscalerTagPrefix = "k8s.io/cluster-autoscaler/"
	// AutoscalerLabelPrefix is followed by the key of a node label.
	AutoscalerLabelPrefix = AutoscalerTagPrefix + "node-template/label/"
	// AutoscalerTaintPrefix is followed by the key of a taint.
	AutoscalerTaintPrefix = AutoscalerTagPrefix + "node-template/taint/"
)

// Limits of the tags of an Auto Scaling group from the manifests: AWS allows 50. Of these, 9 are Slipway's own, and 4 more
// of a group with spec.autoscale.
const (
	maxGroupTags      = 41
	maxAutoscaledTags = 37
)

// checkGroupTags checks the tags of a group's Auto Scaling group together: spec.tags of the cluster, cloudLabels and, if
// the autoscaler manages the group, one for each node label and taint.
func checkGroupTags(v validator, spec v1alpha1.InstanceGroupSpec, clusterTags map[string]string) {
	keys := maps.Clone(clusterTags)
	if keys == nil {
		keys = map[string]string{}
	}

	maps.Copy(keys, spec.CloudLabels)

	if !spec.Autoscale {
		if len(keys) > maxGroupTags {
			v.errorf(
				"spec.cloudLabels",
				strconv.Itoa(len(spec.CloudLabels)),
				fmt.Sprintf("use at most %d keys in spec.tags of the cluster and spec.cloudLabels together", maxGroupTags),
				"makes %d tags with spec.tags of the cluster, more than an Auto Scaling group allows",
				len(keys),
			)
		}

		return
	}

	for _, key := range slices.Sorted(maps.Keys(spec.NodeLabels)) {
		keys[AutoscalerLabelPrefix+key] = ""
		checkAutoscaledKey(v, "spec.nodeLabels["+key+"]", key, AutoscalerLabelPrefix)
	}

	for i, taint := range spec.Taints {
		key := TaintKey(taint)
		keys[AutoscalerTaintPrefix+key] = ""
		checkAutoscaledKey(v, fmt.Sprintf("spec.taints[%d]", i), key, AutoscalerTaintPrefix)
	}

	if len(keys) > maxAutoscaledTags {
		v.errorf(
			"spec.autoscale",
			"true",
			fmt.Sprintf("use at most %d", maxAutoscaledTags),
			"needs a tag for each label and taint: with spec.tags of the cluster and cloudLabels %d tags, more than an "+
				"Auto Scaling group allows",
			len(keys),
		)
	}
}

// checkAutoscaledKey reports a key of a label or taint that does not fit into a tag's key after prefix.
func checkAutoscaledKey(v validator, path, key, prefix string) {
	if most := maxTagKey - len(prefix); len(key) > most {
		v.errorf(
			path,
			key,
			fmt.Sprintf("use a key of at most %d characters, or leave out spec.autoscale", most),
			"is too long for the tag %sKEY, by which the cluster autoscaler knows the group: AWS allows %d characters",
			prefix,
			maxTagKey,
		)
	}
}

// TaintKey returns the key of a taint that is written as KEY=VALUE:EFFECT.
func TaintKey(taint string) string {
	pair, _, _ := strings.Cut(taint, ":")
	key, _, _ := strings.Cut(pair, "=")

	return key
}
