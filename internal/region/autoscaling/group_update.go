// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"cmp"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

func (s *Service) updateAutoScalingGroup(
	in *sdk.UpdateAutoScalingGroupInput,
) (*sdk.UpdateAutoScalingGroupOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}

	if g.Deleting {
		return nil, newErrorf(
			codeScalingActivityInProgress,
			"AutoScalingGroup %s is being deleted",
			sdkshape.String(in.AutoScalingGroupName),
		)
	}

	after := *g.Shape
	after.MinSize = numberOrDefault(
		in.MinSize,
		*after.MinSize,
	)
	after.MaxSize = numberOrDefault(
		in.MaxSize,
		*after.MaxSize,
	)

	after.DesiredCapacity = numberOrDefault(
		in.DesiredCapacity,
		min(max(*after.DesiredCapacity, *after.MinSize), *after.MaxSize),
	)
	if err := checkCapacity(*after.MinSize, *after.MaxSize, *after.DesiredCapacity); err != nil {
		return nil, err
	}

	if err := checkTemplateSpec(in.LaunchTemplate); err != nil {
		return nil, err
	}

	applyLaunchSource(&after, in)
	if in.VPCZoneIdentifier != nil {
		after.VPCZoneIdentifier = in.VPCZoneIdentifier
	}

	applyOptionalFields(&after, in)
	err = cmp.Or(checkBehavior(&after), s.resolveLaunchSource(&after), s.resolveZones(&after))
	if err != nil {
		return nil, err
	}

	g.Shape = &after
	g.NotBefore = s.cfg.Now()
	g.Failures = 0

	return &sdk.UpdateAutoScalingGroupOutput{}, nil
}

// applyLaunchSource changes what a group launches if an update sets it. A launch template and a policy
// replace each other.
func applyLaunchSource(g *sdk.Group, in *sdk.UpdateAutoScalingGroupInput) {
	if in.LaunchTemplate != nil {
		g.LaunchTemplate = in.LaunchTemplate
		g.MixedInstancesPolicy = nil
	}

	if in.MixedInstancesPolicy != nil {
		g.MixedInstancesPolicy = in.MixedInstancesPolicy
		g.LaunchTemplate = in.LaunchTemplate
	}
}

// applyOptionalFields changes the fields of a group that an update may leave out.
func applyOptionalFields(g *sdk.Group, in *sdk.UpdateAutoScalingGroupInput) {
	g.DefaultCooldown = numberOrDefault(in.DefaultCooldown, *g.DefaultCooldown)
	g.HealthCheckGracePeriod = numberOrDefault(in.HealthCheckGracePeriod, *g.HealthCheckGracePeriod)
	if in.HealthCheckType != nil {
		g.HealthCheckType = in.HealthCheckType
	}

	if in.NewInstancesProtectedFromScaleIn != nil {
		g.NewInstancesProtectedFromScaleIn = in.NewInstancesProtectedFromScaleIn
	}

	if len(in.TerminationPolicies) > 0 {
		g.TerminationPolicies = in.TerminationPolicies
	}

	if in.MaxInstanceLifetime != nil {
		g.MaxInstanceLifetime = in.MaxInstanceLifetime
	}

	if in.CapacityRebalance != nil {
		g.CapacityRebalance = in.CapacityRebalance
	}

	if in.DefaultInstanceWarmup != nil {
		g.DefaultInstanceWarmup = in.DefaultInstanceWarmup
	}
}

func (s *Service) setDesiredCapacity(in *sdk.SetDesiredCapacityInput) (*sdk.SetDesiredCapacityOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}

	n := *numberOrDefault(in.DesiredCapacity, -1)

	switch {
	case n < *g.Shape.MinSize:
		return nil, validationError(
			"New SetDesiredCapacity value %d is below min value %d for the AutoScalingGroup.",
			n,
			*g.Shape.MinSize,
		)

	case n > *g.Shape.MaxSize:
		return nil, validationError(
			"New SetDesiredCapacity value %d is above max value %d for the AutoScalingGroup.",
			n,
			*g.Shape.MaxSize,
		)
	}

	g.Shape.DesiredCapacity = new(n)
	g.NotBefore = s.cfg.Now()
	g.Failures = 0

	return &sdk.SetDesiredCapacityOutput{}, nil
}
