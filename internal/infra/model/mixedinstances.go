// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// mixedInstancesPolicy is what a group's policy says of the machines that are launched from a template; nothing without a policy.
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

	for _, kind := range p.Instances {
		out.Launch.Overrides = append(out.Launch.Overrides, awskind.InstanceTypeOverride{InstanceType: kind})
	}

	return out
}
