// SPDX-License-Identifier: Apache-2.0

package node

// TerminationHook is the name of the lifecycle hook that an Auto Scaling group runs before it terminates a machine.
// Package model creates it.
const TerminationHook = "slipway-drain"

// ScalingGroupName returns the name of the Auto Scaling group of a machine; slot is empty for workers. Package model
// gives the groups these names.
func ScalingGroupName(cluster, group, slot string) string {
	if slot != "" {
		group += "-" + slot
	}

	return group + "." + cluster
}
