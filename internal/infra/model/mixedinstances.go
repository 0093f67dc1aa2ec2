// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// mixedInstancesPolicy returns a group's policy for instances started from a launch template; zero if the
// group has none.
func mixedInstancesPolicy(
	spec v1alpha1.InstanceGroupSpec,
	from awskind.TemplateSpec,
) awskind.MixedInstancesPolicy {
	p := spec.MixedInstancesPolicy
	if len(p.Instances) == 0 {
		return awskind.MixedInstancesPolicy{}
	}

	out := awskind.MixedInstancesPolicy{
		Launch: awskind.MixedLaunch{Template: awskind.MixedTemplateSpec(from)},
		Distribution: awskind.InstancesDistribution{
			OnDemandAllocation: p.OnDemandAllocationStrategy,
			OnDemandBase:       p.OnDemandBase,
			OnDemandPercentage: p.OnDemandAboveBase,
			SpotAllocation:     p.SpotAllocationStrategy,
			SpotMaxPrice:       spec.MaxPrice,
		},
	}

	for _, instanceType := range p.Instances {
		override := awskind.InstanceTypeOverride{InstanceType: instanceType}
		out.Launch.Overrides = append(out.Launch.Overrides, override)
	}

	return out
}
