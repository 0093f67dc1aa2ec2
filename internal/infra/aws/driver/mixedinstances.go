// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// toMixedPolicy returns nil for a policy without overrides: then the group names its template
// itself.
func toMixedPolicy(p awskind.MixedInstancesPolicy) *astypes.MixedInstancesPolicy {
	if len(p.Launch.Overrides) == 0 {
		return nil
	}

	d := p.Distribution
	out := &astypes.MixedInstancesPolicy{
		LaunchTemplate: &astypes.LaunchTemplate{
			LaunchTemplateSpecification: toTemplateSpec(awskind.TemplateSpec(p.Launch.Template)),
		},
		InstancesDistribution: &astypes.InstancesDistribution{
			OnDemandAllocationStrategy:          stringOrNil(d.OnDemandAllocation),
			SpotAllocationStrategy:              stringOrNil(d.SpotAllocation),
			OnDemandBaseCapacity:                aws.Int32(int32(d.OnDemandBase)),
			OnDemandPercentageAboveBaseCapacity: aws.Int32(int32(d.OnDemandPercentage)),
			SpotMaxPrice:                        &d.SpotMaxPrice, // an empty price removes an earlier one
		},
	}

	for _, o := range p.Launch.Overrides {
		out.LaunchTemplate.Overrides = append(
			out.LaunchTemplate.Overrides,
			astypes.LaunchTemplateOverrides{InstanceType: aws.String(o.InstanceType)},
		)
	}

	return out
}

// fromMixedPolicy returns the policy of a group; zero for nil.
func fromMixedPolicy(p *astypes.MixedInstancesPolicy) awskind.MixedInstancesPolicy {
	var out awskind.MixedInstancesPolicy
	if p == nil {
		return out
	}

	if lt := p.LaunchTemplate; lt != nil {
		if spec := lt.LaunchTemplateSpecification; spec != nil {
			out.Launch.Template = awskind.MixedTemplateSpec{
				ID:      graph.UnmanagedRef[awskind.LaunchTemplate](aws.ToString(spec.LaunchTemplateId)),
				Version: graph.LiteralText(aws.ToString(spec.Version)),
			}
		}

		for _, o := range lt.Overrides {
			out.Launch.Overrides = append(
				out.Launch.Overrides,
				awskind.InstanceTypeOverride{InstanceType: aws.ToString(o.InstanceType)},
			)
		}
	}

	if d := p.InstancesDistribution; d != nil {
		out.Distribution = awskind.InstancesDistribution{
			OnDemandAllocation: aws.ToString(d.OnDemandAllocationStrategy),
			SpotAllocation:     aws.ToString(d.SpotAllocationStrategy),
			OnDemandBase:       int(aws.ToInt32(d.OnDemandBaseCapacity)),
			OnDemandPercentage: int(aws.ToInt32(d.OnDemandPercentageAboveBaseCapacity)),
			SpotMaxPrice:       aws.ToString(d.SpotMaxPrice),
		}
	}

	return out
}

// toTemplateSpec returns nil if the group has a mixed instances policy, which names the template.
func toTemplateSpec(t awskind.TemplateSpec) *astypes.LaunchTemplateSpecification {
	if t.ID.Literal() == "" {
		return nil
	}

	id := t.ID.Literal()
	version, _ := t.Version.Literal()

	return &astypes.LaunchTemplateSpecification{LaunchTemplateId: &id, Version: &version}
}
