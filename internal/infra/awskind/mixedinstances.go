// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// MixedInstancesPolicy of an [AutoScalingGroup] stands in the place of its template: it lists instance types in the order
// in which they are wanted, and says how many machines are not spot ones.
type MixedInstancesPolicy struct {
	Launch       MixedLaunch           `aws:"LaunchTemplate"`
	Distribution InstancesDistribution `aws:"InstancesDistribution"`
}

// MixedLaunch is the template, and what each type changes of it.
type MixedLaunch struct {
	Template  MixedTemplateSpec      `aws:"LaunchTemplateSpecification"`
	Overrides []InstanceTypeOverride `aws:"Overrides" tf:"override"`
}

// MixedTemplateSpec is a [TemplateSpec] as Terraform spells it here.
type MixedTemplateSpec struct {
	ID      graph.Ref[LaunchTemplate] `aws:"LaunchTemplateId"`
	Version graph.Text                `aws:"Version"`
}

// InstanceTypeOverride is one type of instance that a group may take. Whoever uses a template may set it where there is but one.
type InstanceTypeOverride struct {
	InstanceType string `aws:"InstanceType,param"`
}

// InstancesDistribution says which instances are on-demand ones, and how types are chosen.
type InstancesDistribution struct {
	OnDemandAllocation string `aws:"OnDemandAllocationStrategy"`
	OnDemandBase       int    `aws:"OnDemandBaseCapacity,always"`
	OnDemandPercentage int    `aws:"OnDemandPercentageAboveBaseCapacity,always"`
	SpotAllocation     string `aws:"SpotAllocationStrategy"`
	SpotMaxPrice       string `aws:"SpotMaxPrice,always"` // dollars an hour; empty: the on-demand price
}
