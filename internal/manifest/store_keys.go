// SPDX-License-Identifier: Apache-2.0

package manifest

// ClusterKey is where a cluster's Cluster document lies in the state store.
func ClusterKey(cluster string) string { return cluster + "/cluster.yaml" }

// GroupKey is where a group's document lies; an empty group gives the prefix of all.
func GroupKey(cluster, group string) string {
	prefix := cluster + "/instancegroups/"
	if group == "" {
		return prefix
	}

	return prefix + group + ".yaml"
}

// AssetsKey is where a cluster's pinned asset catalogue lies.
func AssetsKey(cluster string) string { return cluster + "/assets.yaml" }
