// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Upgrade configures what 'slipway upgrade cluster --automatic' may do, which a timer such as cron or a
// scheduled GitHub workflow runs.
type Upgrade struct {
	// AutomaticPatches allows upgrades to the newest patch of the cluster's minor version of Kubernetes
	// within the maintenance window. If unset, an upgrade happens only when somebody asks for it.
	AutomaticPatches bool `json:"automaticPatches,omitempty"`

	// MaintenanceWindow is the time in which automatic upgrades may take machines from service.
	// Required with automaticPatches.
	MaintenanceWindow MaintenanceWindow `json:"maintenanceWindow,omitzero"`
}

// MaintenanceWindow is a time of the week. It may extend beyond midnight.
type MaintenanceWindow struct {
	// Days on which the window begins, such as [Saturday, Sunday], in UTC. If unset, it begins every day.
	Days []string `json:"days,omitempty"`

	// Start is the time of day at which the window begins, in UTC, such as 02:00.
	Start string `json:"start,omitempty"`

	// Duration of the window, such as 4h, from 30m to 24h. An upgrade that is not complete at its end
	// completes the machine whose replacement has begun and continues in the next window.
	Duration string `json:"duration,omitempty"`
}
