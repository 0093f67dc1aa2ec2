// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"log/slog"
	"maps"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// checkTargetGroups checks that target groups exist.
func (s *Service) checkTargetGroups(arns []*string) error {
	for _, arn := range sdkshape.Strings(arns) {
		if !s.cfg.TargetGroups.HasTargetGroup(arn) {
			return validationError(
				"Provided Target Groups may not be valid. Please ensure they exist and try again. (%s)",
				arn,
			)
		}
	}

	return nil
}

func (s *Service) attachLoadBalancerTargetGroups(
	in *sdk.AttachLoadBalancerTargetGroupsInput,
) (*sdk.AttachLoadBalancerTargetGroupsOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}

	if err := s.checkTargetGroups(in.TargetGroupARNs); err != nil {
		return nil, err
	}

	all := append(sdkshape.Strings(g.Shape.TargetGroupARNs), sdkshape.Strings(in.TargetGroupARNs)...)
	slices.Sort(all)
	g.Shape.TargetGroupARNs = sdkshape.StringPointers(slices.Compact(all))

	return &sdk.AttachLoadBalancerTargetGroupsOutput{}, nil
}

func (s *Service) detachLoadBalancerTargetGroups(
	in *sdk.DetachLoadBalancerTargetGroupsInput,
) (*sdk.DetachLoadBalancerTargetGroupsOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}

	detached := sdkshape.Strings(in.TargetGroupARNs)

	for _, arn := range detached {
		if !slices.Contains(sdkshape.Strings(g.Shape.TargetGroupARNs), arn) {
			return nil, validationError(
				"Trying to remove Target Groups that are not part of the group: %s",
				arn,
			)
		}
	}

	g.Shape.TargetGroupARNs = slices.DeleteFunc(
		slices.Clone(g.Shape.TargetGroupARNs),
		func(a *string) bool { return slices.Contains(detached, *a) },
	)

	return &sdk.DetachLoadBalancerTargetGroupsOutput{}, nil
}

func (s *Service) describeLoadBalancerTargetGroups(
	in *sdk.DescribeLoadBalancerTargetGroupsInput,
) (*sdk.DescribeLoadBalancerTargetGroupsOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}

	arns, next, err := paginateKeys(
		slices.Sorted(slices.Values(sdkshape.Strings(g.Shape.TargetGroupARNs))),
		in.MaxRecords,
		in.NextToken,
	)

	out := &sdk.DescribeLoadBalancerTargetGroupsOutput{NextToken: next}

	for _, arn := range arns {
		out.LoadBalancerTargetGroups = append(out.LoadBalancerTargetGroups, &sdk.LoadBalancerTargetGroupState{
			LoadBalancerTargetGroupARN: new(arn),
			State:                      new("InService"),
		})
	}

	return out, err
}

// registerInstances registers the instances in service with the target groups of the group, and deregisters
// them from others.
func (s *Service) registerInstances(g *group) {
	wanted := sdkshape.Strings(g.Shape.TargetGroupARNs)
	for _, i := range g.Shape.Instances {
		id := sdkshape.String(i.InstanceId)
		if sdkshape.String(i.LifecycleState) != sdk.LifecycleStateInService {
			continue
		}

		for _, arn := range slices.Clone(g.Registered[id]) {
			if !slices.Contains(wanted, arn) {
				s.deregisterTarget(g, id, arn)
			}
		}

		for _, arn := range wanted {
			if g.isSuspended("AddToLoadBalancer") || slices.Contains(g.Registered[id], arn) {
				continue
			}

			if err := s.cfg.TargetGroups.RegisterTargets(arn, id); err != nil {
				s.cfg.Log.Warn(
					"failed to register an instance",
					slog.String("instance", id),
					slog.String("targetGroup", arn),
					slog.Any("error", err),
				)

				continue
			}

			if g.Registered == nil {
				g.Registered = map[string][]string{}
			}

			g.Registered[id] = append(g.Registered[id], arn)
			s.store.MarkChanged()
		}
	}
}

// deregisterInstance deregisters an instance from all its target groups.
func (s *Service) deregisterInstance(g *group, id string) {
	for _, arn := range slices.Clone(g.Registered[id]) {
		s.deregisterTarget(g, id, arn)
	}

	s.store.MarkChanged()
}

// deregisterTarget deregisters an instance from one target group.
func (s *Service) deregisterTarget(g *group, id, arn string) {
	if err := s.cfg.TargetGroups.DeregisterTargets(arn, id); err != nil {
		s.cfg.Log.Warn(
			"failed to deregister an instance",
			slog.String("instance", id),
			slog.String("targetGroup", arn),
			slog.Any("error", err),
		)
	}

	g.Registered[id] = slices.DeleteFunc(g.Registered[id], func(a string) bool { return a == arn })
	maps.DeleteFunc(g.Registered, func(_ string, arns []string) bool { return len(arns) == 0 })
	s.store.MarkChanged()
}
