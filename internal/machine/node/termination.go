// SPDX-License-Identifier: Apache-2.0

package node

// TerminationHook is the name of the lifecycle hook that an Auto Scaling group runs before it terminates a machine.
// Package model creates it.
const TerminationHook = "slipway-drain"

// LaunchHook is the name of the lifecycle hook that an Auto Scaling group with a warm pool runs
// when it launches a machine, and again when the machine leaves the pool. Package model creates it.
const LaunchHook = "slipway-launch"

// ScalingGroupName returns the name of the Auto Scaling group of a machine; slot is empty for workers. Package model
// gives the groups these names.
func ScalingGroupName(cluster, group, slot string) string {
	if slot != "" {
		group += "-" + slot
	}

	return group + "." + cluster
}
