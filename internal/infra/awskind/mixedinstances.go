// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// MixedInstancesPolicy replaces the template of an [AutoScalingGroup]: it lists instance types in order of
// preference and sets how many machines are on-demand instances.
type MixedInstancesPolicy struct {
	Launch MixedLaunch `aws:"LaunchTemplate"`
	// Distribution between on-demand and spot instances.
	Distribution InstancesDistribution `aws:"InstancesDistribution"`
}

// MixedLaunch is the launch template, and what each instance type overrides in it.
type MixedLaunch struct {
	Template  MixedTemplateSpec      `aws:"LaunchTemplateSpecification"`
	Overrides []InstanceTypeOverride `aws:"Overrides" tf:"override"` // in order of preference
}

// MixedTemplateSpec is a [TemplateSpec] with the name that Terraform uses in this place.
type MixedTemplateSpec struct {
	ID      graph.Ref[LaunchTemplate] `aws:"LaunchTemplateId"`
	Version graph.Text                `aws:"Version"` // the number of the version
}

// InstanceTypeOverride is one instance type that a group may use. Rendered templates have a parameter for it
// if the group has only one.
type InstanceTypeOverride struct {
	InstanceType string `aws:"InstanceType,param"` // such as m5.large
}

// InstancesDistribution sets which instances are on-demand instances, and how AWS chooses among the types.
type InstancesDistribution struct {
	// prioritized or lowest-price
	OnDemandAllocation string `aws:"OnDemandAllocationStrategy"`
	// instances that are always on-demand
	OnDemandBase int `aws:"OnDemandBaseCapacity,always"`
	// of the instances above the base
	OnDemandPercentage int `aws:"OnDemandPercentageAboveBaseCapacity,always"`
	// such as capacity-optimized-prioritized
	SpotAllocation string `aws:"SpotAllocationStrategy"`
	// US dollars per hour; empty: the on-demand price
	SpotMaxPrice string `aws:"SpotMaxPrice,always"`
}
