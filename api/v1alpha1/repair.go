// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Repair configures the replacement of machines that run but do not work. For workers: if the node is not Ready for too
// long, the machine is drained and terminated, and its group launches another one. Nothing is replaced while the control
// plane is not healthy, or while most nodes of a zone are not Ready. For the control plane: another machine of it reports
// the machine to Auto Scaling as unhealthy, one at a time, and never without a quorum among the others. A change takes
// effect at once, without new machines.
type Repair struct {
	// Disabled turns automatic repair off for the group.
	Disabled bool `json:"disabled,omitempty"`

	// NotReadyFor is how long a node must be not Ready before its machine is replaced, from 2m to 24h. For the control
	// plane, it is how long a machine must not work: its node is not Ready, a disk is full, or its etcd member is lost.
	NotReadyFor string `json:"notReadyFor,omitempty"`

	// MaxUnhealthyPercent is the share of a group of workers that may be not Ready, starting or missing while machines are
	// replaced, from 1 to 100. One machine is always allowed. If more are unhealthy, none is replaced: the cause is
	// probably not the machines.
	MaxUnhealthyPercent int `json:"maxUnhealthyPercent,omitempty"`

	// MinMachineAge is how long ago each machine of the control plane must have been launched before one of them is
	// replaced, from 5m to 24h: a new machine may still copy or restore its data.
	MinMachineAge string `json:"minMachineAge,omitempty"`
}
