// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Repair configures the replacement of workers whose node is not Ready for too long. A machine is drained and
// terminated, and its group launches another one. Nothing is replaced while the control plane is not healthy, or while
// most nodes of a zone are not Ready. A change takes effect at once, without new machines.
type Repair struct {
	// Disabled turns automatic repair off for the group.
	Disabled bool `json:"disabled,omitempty"`

	// NotReadyFor is how long a node must be not Ready before its machine is replaced, from 2m to 24h.
	NotReadyFor string `json:"notReadyFor,omitempty"`

	// MaxUnhealthyPercent is the share of the group that may be not Ready, starting or missing while machines are
	// replaced, from 1 to 100. One machine is always allowed. If more are unhealthy, none is replaced: the cause is
	// probably not the machines.
	MaxUnhealthyPercent int `json:"maxUnhealthyPercent,omitempty"`
}
