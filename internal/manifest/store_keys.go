// SPDX-License-Identifier: Apache-2.0

package manifest

// ClusterKey returns the key of a cluster's Cluster document in the state store.
func ClusterKey(cluster string) string { return cluster + "/cluster.yaml" }

// GroupKey returns the key of a group's document in the state store. For an empty group name it
// returns the prefix of the keys of all groups.
func GroupKey(cluster, group string) string {
	prefix := cluster + "/instancegroups/"
	if group == "" {
		return prefix
	}

	return prefix + group + ".yaml"
}

// AssetsKey returns the key of a cluster's pinned asset catalogue in the state store.
func AssetsKey(cluster string) string { return cluster + "/assets.yaml" }
