// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) groupOps() []wire.Operation {
	return []wire.Operation{
		wire.NewOperation("CreateAutoScalingGroup", s.createAutoScalingGroup),
		state.WriteOperation(s.store, "UpdateAutoScalingGroup", s.updateAutoScalingGroup),
		state.WriteOperation(s.store, "DeleteAutoScalingGroup", s.deleteAutoScalingGroup),
		state.ReadOperation(s.store, "DescribeAutoScalingGroups", s.describeAutoScalingGroups),
		state.WriteOperation(s.store, "SetDesiredCapacity", s.setDesiredCapacity),
		state.WriteOperation(s.store, "AttachLoadBalancerTargetGroups", s.attachLoadBalancerTargetGroups),
		state.WriteOperation(s.store, "DetachLoadBalancerTargetGroups", s.detachLoadBalancerTargetGroups),
		state.ReadOperation(s.store, "DescribeLoadBalancerTargetGroups", s.describeLoadBalancerTargetGroups),
		state.WriteOperation(s.store, "SuspendProcesses", s.suspendProcesses),
		state.WriteOperation(s.store, "ResumeProcesses", s.resumeProcesses),
	}
}

// numberOrDefault returns p, or a pointer to otherwise if p is nil.
func numberOrDefault(p *int64, otherwise int64) *int64 {
	if p != nil {
		return p
	}

	return new(otherwise)
}

// textOrDefault returns p, or a pointer to otherwise if p is nil.
func textOrDefault(p *string, otherwise string) *string {
	if p != nil {
		return p
	}

	return new(otherwise)
}

// isTrue returns the value of an optional flag; nil is false.
func isTrue(b *bool) bool { return b != nil && *b }

// checkCapacity checks the sizes of a group.
func checkCapacity(lowest, highest, desired int64) error {
	switch {
	case lowest < 0 || highest < 0:
		return validationError("MinSize and MaxSize must not be negative")
	case lowest > highest:
		return validationError(
			"Max bound, %d, must be greater than or equal to min bound, %d",
			highest,
			lowest,
		)

	case desired < lowest || desired > highest:
		return validationError(
			"Desired capacity:%d must be between the specified min size:%d and max size:%d",
			desired,
			lowest,
			highest,
		)
	}

	return nil
}

// checkBehavior refuses health checks that do not exist, and what the region does not do: other health checks, termination
// policies and a maximum lifetime of instances.
func checkBehavior(g *sdk.Group) error {
	for name := range strings.SplitSeq(sdkshape.String(g.HealthCheckType), ",") {
		switch name {
		case "EC2", "ELB":
		case "EBS", "VPC_LATTICE":
			return newNotImplementedError("HealthCheckType: " + name)
		default:
			return validationError("'%s' is not a valid health check type", name)
		}
	}

	for _, policy := range sdkshape.Strings(g.TerminationPolicies) {
		if policy != "Default" {
			return newNotImplementedError("TerminationPolicies: " + policy)
		}
	}

	if n := g.MaxInstanceLifetime; n != nil && *n != 0 {
		return newNotImplementedError("MaxInstanceLifetime")
	}

	return nil
}

// resolveZones checks the subnets of a group and sets its availability zones.
func (s *Service) resolveZones(g *sdk.Group) error {
	ids := parseSubnetIDs(g.VPCZoneIdentifier)
	if len(ids) == 0 {
		return validationError("At least one Availability Zone or VPC Subnet is required.")
	}

	places, err := s.cfg.EC2.SubnetPlacements(ids...)
	if refusal, ok := errors.AsType[*wire.Error](err); ok {
		return validationError("%s", refusal.Message)
	}

	if err != nil {
		return err
	}

	var zones []string

	for _, p := range places {
		if p.VPC != places[0].VPC {
			return validationError("The subnets must all be in the same VPC")
		}

		zones = append(zones, p.Zone)
	}

	slices.Sort(zones)
	g.AvailabilityZones = sdkshape.StringPointers(slices.Compact(zones))

	return nil
}

// createAutoScalingGroup creates a group, with the system tags of the request. Its instances get these tags
// as well.
func (s *Service) createAutoScalingGroup(
	ctx context.Context,
	in *sdk.CreateAutoScalingGroupInput,
) (*sdk.CreateAutoScalingGroupOutput, error) {
	return state.RunWrite(
		s.store,
		func(in *sdk.CreateAutoScalingGroupInput) (*sdk.CreateAutoScalingGroupOutput, error) {
			out, err := s.addNewGroup(in)
			if err == nil {
				for k, v := range wire.SystemTags(ctx) {
					s.st.Groups[sdkshape.String(in.AutoScalingGroupName)].Tags[k] = groupTag{
						Value:     v,
						Propagate: true,
					}
				}
			}

			return out, err
		},
		in,
	)
}

// addNewGroup is createAutoScalingGroup under the lock.
func (s *Service) addNewGroup(
	in *sdk.CreateAutoScalingGroupInput,
) (*sdk.CreateAutoScalingGroupOutput, error) {
	name := sdkshape.String(in.AutoScalingGroupName)
	switch {
	case name == "" || len(name) > 255 || strings.Contains(name, ":"):
		return nil, validationError(
			"The AutoScalingGroupName '%s' must be 1 to 255 characters without a colon",
			name,
		)

	case s.st.Groups[name] != nil:
		return nil, newErrorf(
			codeAlreadyExists,
			"AutoScalingGroup by this name already exists - A group with the name %s already exists",
			name,
		)

	case in.MinSize == nil || in.MaxSize == nil:
		return nil, validationError("MinSize and MaxSize are required")
	case len(s.st.Groups) >= s.cfg.MaxGroups:
		return nil, newErrorf(
			codeLimitExceeded,
			"The number of groups has reached its limit of %d",
			s.cfg.MaxGroups,
		)
	}

	desired := *numberOrDefault(in.DesiredCapacity, *in.MinSize)
	if err := checkCapacity(*in.MinSize, *in.MaxSize, desired); err != nil {
		return nil, err
	}

	g, err := s.newGroup(name, in)
	if err != nil {
		return nil, err
	}

	s.st.Groups[name] = g

	return &sdk.CreateAutoScalingGroupOutput{}, nil
}

// newGroup returns the group of a request whose sizes are valid.
func (s *Service) newGroup(name string, in *sdk.CreateAutoScalingGroupInput) (*group, error) {
	uuid := sdkshape.RandomUUID(s.cfg.Rand)
	g := &group{
		Tags: map[string]groupTag{},
		Shape: &sdk.Group{
			AutoScalingGroupARN:              new(strings.Replace(s.groupARN(name), ":*:", ":"+uuid+":", 1)),
			AutoScalingGroupName:             new(name),
			CreatedTime:                      new(s.cfg.Now().UTC()),
			MinSize:                          in.MinSize,
			MaxSize:                          in.MaxSize,
			DesiredCapacity:                  numberOrDefault(in.DesiredCapacity, *in.MinSize),
			DefaultCooldown:                  numberOrDefault(in.DefaultCooldown, 300),
			HealthCheckType:                  textOrDefault(in.HealthCheckType, "EC2"),
			HealthCheckGracePeriod:           numberOrDefault(in.HealthCheckGracePeriod, 0),
			CapacityRebalance:                new(isTrue(in.CapacityRebalance)),
			LaunchTemplate:                   in.LaunchTemplate,
			MixedInstancesPolicy:             in.MixedInstancesPolicy,
			VPCZoneIdentifier:                in.VPCZoneIdentifier,
			TargetGroupARNs:                  in.TargetGroupARNs,
			TerminationPolicies:              in.TerminationPolicies,
			MaxInstanceLifetime:              in.MaxInstanceLifetime,
			NewInstancesProtectedFromScaleIn: new(isTrue(in.NewInstancesProtectedFromScaleIn)),
			Instances:                        []*sdk.Instance{},
			SuspendedProcesses:               []*sdk.SuspendedProcess{},
			EnabledMetrics:                   []*sdk.EnabledMetric{},
			LoadBalancerNames:                []*string{},
			DefaultInstanceWarmup:            in.DefaultInstanceWarmup,
			ServiceLinkedRoleARN:             new(s.serviceRoleARN()),
		},
	}
	if len(in.TerminationPolicies) == 0 {
		g.Shape.TerminationPolicies = sdkshape.StringPointers([]string{"Default"})
	}

	if err := checkTemplateSpec(in.LaunchTemplate); err != nil {
		return nil, err // before resolveLaunchSource, which sets both
	}

	err := cmp.Or(
		checkBehavior(g.Shape),
		s.resolveLaunchSource(g.Shape),
		s.resolveZones(g.Shape),
		s.checkTargetGroups(in.TargetGroupARNs),
		checkTags(in.Tags),
	)
	if err != nil {
		return nil, err
	}

	g.setTags(in.Tags)

	return g, g.addInitialHooks(in.LifecycleHookSpecificationList)
}

func (s *Service) deleteAutoScalingGroup(
	in *sdk.DeleteAutoScalingGroupInput,
) (*sdk.DeleteAutoScalingGroupOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}

	name := sdkshape.String(in.AutoScalingGroupName)
	force := isTrue(in.ForceDelete)

	switch {
	case len(g.Shape.Instances) == 0 && g.Shape.WarmPoolConfiguration == nil:
		delete(s.st.Groups, name)
		return &sdk.DeleteAutoScalingGroupOutput{}, nil
	case force:
	case g.Shape.WarmPoolConfiguration != nil:
		return nil, newErrorf(
			codeResourceInUse,
			"You cannot delete an AutoScalingGroup while there is a warm pool associated with it.",
		)

	case *g.Shape.DesiredCapacity > 0:
		return nil, newErrorf(
			codeResourceInUse,
			"You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) "+
				"still in the group.",
		)

	default:
		return nil, newErrorf(
			codeScalingActivityInProgress,
			"You cannot delete an AutoScalingGroup while there are scaling activities in progress for that group.",
		)
	}

	g.Deleting = true
	g.Actions = nil // proceedLifecycle terminates the instances that wait
	g.clearWarmPool()
	g.Shape.Status = new("Delete in progress")
	g.Shape.MinSize = new(int64(0))
	g.Shape.MaxSize = new(int64(0))
	g.Shape.DesiredCapacity = new(int64(0))

	return &sdk.DeleteAutoScalingGroupOutput{}, nil
}

func (s *Service) describeAutoScalingGroups(
	in *sdk.DescribeAutoScalingGroupsInput,
) (*sdk.DescribeAutoScalingGroupsOutput, error) {
	names := sdkshape.SortedKeys(s.st.Groups)
	if len(in.AutoScalingGroupNames) > 0 {
		if err := checkNameCount(len(in.AutoScalingGroupNames), in.MaxRecords); err != nil {
			return nil, err
		}

		wanted := sdkshape.Strings(in.AutoScalingGroupNames)
		names = slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(wanted, n) })
	}

	for _, f := range in.Filters {
		if n := sdkshape.String(f.Name); n != "tag-key" && n != "tag-value" && !strings.HasPrefix(n, "tag:") {
			return nil, validationError(
				"Filter type %s is not correct. Allowed Filter types are: tag-key, tag-value, tag:<key>",
				n,
			)
		}

		names = slices.DeleteFunc(names, func(n string) bool { return !s.st.Groups[n].matchesFilter(f) })
	}

	names, next, err := paginateKeys(names, in.MaxRecords, in.NextToken)
	if err != nil {
		return nil, err
	}

	out := &sdk.DescribeAutoScalingGroupsOutput{NextToken: next, AutoScalingGroups: []*sdk.Group{}}

	for _, n := range names {
		g := s.st.Groups[n]
		g.Shape.Tags = g.tagDescriptions()
		if g.Shape.WarmPoolConfiguration != nil {
			g.Shape.WarmPoolSize = new(int64(len(g.Warm)))
		}

		out.AutoScalingGroups = append(out.AutoScalingGroups, g.Shape)
	}

	return out, nil
}

// checkNameCount refuses more names of groups than a page has records. See docs/aws-facts.md.
func checkNameCount(names int, maxRecords *int64) error {
	if limit := *numberOrDefault(maxRecords, defaultPageSize); int64(names) > limit {
		return validationError("The number of Auto Scaling group names (%d) exceeds MaxRecords (%d)", names, limit)
	}

	return nil
}

// matchesFilter reports whether a tag of the group matches a filter.
func (g *group) matchesFilter(f *sdk.Filter) bool {
	name := sdkshape.String(f.Name)
	wanted := sdkshape.Strings(f.Values)
	if key, ok := strings.CutPrefix(name, "tag:"); ok {
		t, has := g.Tags[key]
		return has && slices.Contains(wanted, t.Value)
	}

	for key, t := range g.Tags {
		if name == "tag-key" && slices.Contains(wanted, key) ||
			name == "tag-value" && slices.Contains(wanted, t.Value) {
			return true
		}
	}

	return false
}
