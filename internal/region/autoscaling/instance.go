// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) instanceOps() []wire.Operation {
	return []wire.Operation{
		wire.NewOperation("TerminateInstanceInAutoScalingGroup", s.terminateInstanceInAutoScalingGroup),
		state.ReadOperation(s.store, "DescribeAutoScalingInstances", s.describeAutoScalingInstances),
		state.ReadOperation(s.store, "DescribeScalingActivities", s.describeScalingActivities),
		state.WriteOperation(s.store, "SetInstanceProtection", s.setInstanceProtection),
		state.WriteOperation(s.store, "SetInstanceHealth", s.setInstanceHealth),
		state.WriteOperation(s.store, "EnterStandby", s.enterStandby),
		state.WriteOperation(s.store, "ExitStandby", s.exitStandby),
		state.WriteOperation(s.store, "DetachInstances", s.detachInstances),
	}
}

func (s *Service) terminateInstanceInAutoScalingGroup(
	ctx context.Context,
	in *sdk.TerminateInstanceInAutoScalingGroupInput,
) (*sdk.TerminateInstanceInAutoScalingGroupOutput, error) {
	type output = sdk.TerminateInstanceInAutoScalingGroupOutput
	return state.RunWrite(
		s.store,
		func(in *sdk.TerminateInstanceInAutoScalingGroupInput) (*output, error) {
			return s.terminateOnRequest(ctx, in)
		},
		in,
	)
}

// terminateOnRequest is terminateInstanceInAutoScalingGroup under the lock.
func (s *Service) terminateOnRequest(
	ctx context.Context,
	in *sdk.TerminateInstanceInAutoScalingGroupInput,
) (*sdk.TerminateInstanceInAutoScalingGroupOutput, error) {
	id := sdkshape.String(in.InstanceId)
	g, i := s.findInstance(id)
	if g == nil {
		return nil, validationError(
			"Instance Id not found - No managed instance found for instance ID: %s",
			id,
		)
	}

	if in.ShouldDecrementDesiredCapacity == nil {
		return nil, validationError("ShouldDecrementDesiredCapacity is required")
	}

	if *in.ShouldDecrementDesiredCapacity {
		if *g.Shape.DesiredCapacity <= *g.Shape.MinSize {
			return nil, validationError(
				"Currently, desiredSize equals minSize (%d). Terminating instance without replacement will violate group's min size constraint.",
				*g.Shape.MinSize,
			)
		}

		g.Shape.DesiredCapacity = new(*g.Shape.DesiredCapacity - 1)
	}

	a := s.terminateGroupInstance(
		ctx,
		g,
		i,
		"instance "+id+" was taken out of service in response to a user request.",
	)

	return &sdk.TerminateInstanceInAutoScalingGroupOutput{Activity: a}, nil
}

// terminateGroupInstance deregisters an instance from its target groups and terminates it.
func (s *Service) terminateGroupInstance(
	ctx context.Context,
	g *group,
	i *sdk.Instance,
	cause string,
) *sdk.Activity {
	id := sdkshape.String(i.InstanceId)
	if a := g.terminationInProgress(i); a != nil {
		return a
	}

	a := s.startActivity(
		g,
		"Terminating EC2 instance: "+id,
		"At "+s.cfg.Now().UTC().Format("2006-01-02T15:04:05Z")+" "+cause,
	)

	a.Details = new(id)
	s.deregisterInstance(g, id)
	if s.beginTermination(g, i) {
		s.terminateEC2Instance(ctx, id)
	}

	return a
}

// terminationInProgress returns the activity that terminates an instance already; nil if none does.
func (g *group) terminationInProgress(i *sdk.Instance) *sdk.Activity {
	for _, a := range g.Activities {
		if isTerminating(i) && sdkshape.String(a.Details) == sdkshape.String(i.InstanceId) &&
			strings.HasPrefix(sdkshape.String(a.Description), "Terminating") {
			return a
		}
	}

	return nil
}

func (s *Service) describeAutoScalingInstances(
	in *sdk.DescribeAutoScalingInstancesInput,
) (*sdk.DescribeAutoScalingInstancesOutput, error) {
	all := map[string]*sdk.InstanceDetails{}
	wanted := sdkshape.Strings(in.InstanceIds)
	for name, g := range s.st.Groups {
		for _, i := range g.Shape.Instances {
			if len(wanted) == 0 || slices.Contains(wanted, sdkshape.String(i.InstanceId)) {
				health := map[string]string{healthy: "HEALTHY", unhealthy: "UNHEALTHY"}[sdkshape.String(i.HealthStatus)]
				all[sdkshape.String(i.InstanceId)] = &sdk.InstanceDetails{
					AutoScalingGroupName: new(name),
					InstanceId:           i.InstanceId,
					AvailabilityZone:     i.AvailabilityZone,
					InstanceType:         i.InstanceType,
					HealthStatus:         new(health),
					LifecycleState:       i.LifecycleState,
					LaunchTemplate:       i.LaunchTemplate,
					ProtectedFromScaleIn: i.ProtectedFromScaleIn,
				}
			}
		}
	}

	keys, next, err := paginateKeys(sdkshape.SortedKeys(all), in.MaxRecords, in.NextToken)
	out := &sdk.DescribeAutoScalingInstancesOutput{
		NextToken:            next,
		AutoScalingInstances: []*sdk.InstanceDetails{},
	}

	for _, k := range keys {
		out.AutoScalingInstances = append(out.AutoScalingInstances, all[k])
	}

	return out, err
}

func (s *Service) describeScalingActivities(
	in *sdk.DescribeScalingActivitiesInput,
) (*sdk.DescribeScalingActivitiesOutput, error) {
	var found []*sdk.Activity
	if in.AutoScalingGroupName != nil {
		g, err := s.findGroup(in.AutoScalingGroupName)
		if err != nil {
			return nil, err
		}

		found = g.Activities
	} else {
		for _, name := range sdkshape.SortedKeys(s.st.Groups) {
			found = append(found, s.st.Groups[name].Activities...)
		}
	}

	wanted := sdkshape.Strings(in.ActivityIds)
	found = slices.DeleteFunc(slices.Clone(found), func(a *sdk.Activity) bool {
		return len(wanted) > 0 && !slices.Contains(wanted, sdkshape.String(a.ActivityId))
	})
	slices.SortStableFunc(
		found,
		func(a, b *sdk.Activity) int { return cmp.Compare(b.StartTime.UnixNano(), a.StartTime.UnixNano()) },
	)

	n, err := parsePageSize(in.MaxRecords, pageSizes{usual: 100, most: 100})
	if err != nil {
		return nil, err
	}

	key := func(a *sdk.Activity) string { return sdkshape.String(a.ActivityId) }
	page, next, err := sdkshape.PaginateList(found, key, n, in.NextToken, invalidToken(in.NextToken))

	return &sdk.DescribeScalingActivitiesOutput{Activities: page, NextToken: next}, err
}

// findInstances returns all instances of the ids if they belong to the group, or else an error.
func (s *Service) findInstances(name *string, ids []*string) (*group, []*sdk.Instance, error) {
	g, err := s.findGroup(name)
	if err != nil {
		return nil, nil, err
	}

	var out []*sdk.Instance

	for _, id := range sdkshape.Strings(ids) {
		owner, i := s.findInstance(id)
		if owner != g {
			return nil, nil, validationError(
				"The instance %s is not part of Auto Scaling group %s.",
				id,
				sdkshape.String(name),
			)
		}

		out = append(out, i)
	}

	return g, out, nil
}

func (s *Service) setInstanceProtection(
	in *sdk.SetInstanceProtectionInput,
) (*sdk.SetInstanceProtectionOutput, error) {
	_, found, err := s.findInstances(in.AutoScalingGroupName, in.InstanceIds)
	if err != nil {
		return nil, err
	}

	for _, i := range found {
		i.ProtectedFromScaleIn = in.ProtectedFromScaleIn
	}

	return &sdk.SetInstanceProtectionOutput{}, nil
}

func (s *Service) setInstanceHealth(in *sdk.SetInstanceHealthInput) (*sdk.SetInstanceHealthOutput, error) {
	g, i := s.findInstance(sdkshape.String(in.InstanceId))
	if g == nil {
		return nil, validationError(
			"Instance Id not found - No managed instance found for instance ID: %s",
			sdkshape.String(in.InstanceId),
		)
	}

	if h := sdkshape.String(in.HealthStatus); h != healthy && h != unhealthy {
		return nil, validationError("Health status '%s' must be %s or %s", h, healthy, unhealthy)
	}

	if sdkshape.String(in.HealthStatus) == unhealthy && respectsGracePeriod(in) && s.isInGracePeriod(g, i) {
		return &sdk.SetInstanceHealthOutput{}, nil
	}

	i.HealthStatus = in.HealthStatus

	return &sdk.SetInstanceHealthOutput{}, nil
}

// respectsGracePeriod returns the parameter ShouldRespectGracePeriod. Its default is true.
func respectsGracePeriod(in *sdk.SetInstanceHealthInput) bool {
	return in.ShouldRespectGracePeriod == nil || *in.ShouldRespectGracePeriod
}

// isInGracePeriod reports whether an instance has not yet been in service for the group's health check grace period.
func (s *Service) isInGracePeriod(g *group, i *sdk.Instance) bool {
	if strings.HasPrefix(sdkshape.String(i.LifecycleState), sdk.LifecycleStatePending) {
		return true
	}

	grace := time.Duration(*g.Shape.HealthCheckGracePeriod) * time.Second

	return s.cfg.Now().Sub(g.Since[sdkshape.String(i.InstanceId)]) < grace
}

func (s *Service) enterStandby(in *sdk.EnterStandbyInput) (*sdk.EnterStandbyOutput, error) {
	g, found, err := s.findInstances(in.AutoScalingGroupName, in.InstanceIds)
	if err != nil {
		return nil, err
	}

	out := &sdk.EnterStandbyOutput{}

	for _, i := range found {
		if sdkshape.String(i.LifecycleState) != sdk.LifecycleStateInService {
			return nil, validationError("The instance %s is not in InService.", sdkshape.String(i.InstanceId))
		}
	}

	if in.ShouldDecrementDesiredCapacity != nil && *in.ShouldDecrementDesiredCapacity {
		if *g.Shape.DesiredCapacity-int64(len(found)) < *g.Shape.MinSize {
			return nil, validationError(
				"AutoScalingGroup %s has min-size=%d and desired-capacity=%d. To place instances into standby, the minimum size must allow it.",
				sdkshape.String(in.AutoScalingGroupName),
				*g.Shape.MinSize,
				*g.Shape.DesiredCapacity,
			)
		}

		g.Shape.DesiredCapacity = new(*g.Shape.DesiredCapacity - int64(len(found)))
	}

	for _, i := range found {
		i.LifecycleState = new(sdk.LifecycleStateStandby)
		s.deregisterInstance(g, sdkshape.String(i.InstanceId))
		out.Activities = append(
			out.Activities,
			s.startActivity(
				g,
				"Moving EC2 instance to Standby: "+sdkshape.String(i.InstanceId),
				"a user request",
			),
		)
	}

	return out, nil
}

func (s *Service) exitStandby(in *sdk.ExitStandbyInput) (*sdk.ExitStandbyOutput, error) {
	g, found, err := s.findInstances(in.AutoScalingGroupName, in.InstanceIds)
	if err != nil {
		return nil, err
	}

	out := &sdk.ExitStandbyOutput{}

	for _, i := range found {
		if sdkshape.String(i.LifecycleState) != sdk.LifecycleStateStandby {
			return nil, validationError("The instance %s is not in Standby.", sdkshape.String(i.InstanceId))
		}
	}

	g.Shape.DesiredCapacity = new(*g.Shape.DesiredCapacity + int64(len(found)))
	g.Shape.MaxSize = new(max(*g.Shape.MaxSize, *g.Shape.DesiredCapacity))

	for _, i := range found {
		i.LifecycleState = new(sdk.LifecycleStatePending)
		out.Activities = append(
			out.Activities,
			s.startActivity(
				g,
				"Moving EC2 instance out of Standby: "+sdkshape.String(i.InstanceId),
				"a user request",
			),
		)
	}

	return out, nil
}

func (s *Service) detachInstances(in *sdk.DetachInstancesInput) (*sdk.DetachInstancesOutput, error) {
	g, found, err := s.findInstances(in.AutoScalingGroupName, in.InstanceIds)
	if err != nil {
		return nil, err
	}

	if in.ShouldDecrementDesiredCapacity != nil && *in.ShouldDecrementDesiredCapacity {
		if *g.Shape.DesiredCapacity-int64(len(found)) < *g.Shape.MinSize {
			return nil, validationError(
				"Detaching would leave fewer than the minimum size of %d",
				*g.Shape.MinSize,
			)
		}

		g.Shape.DesiredCapacity = new(*g.Shape.DesiredCapacity - int64(len(found)))
	}

	out := &sdk.DetachInstancesOutput{}

	for _, i := range found {
		id := sdkshape.String(i.InstanceId)
		s.deregisterInstance(g, id)
		g.removeInstance(id)
		out.Activities = append(
			out.Activities,
			s.startActivity(g, "Detaching EC2 instance: "+id, "a user request"),
		)
	}

	return out, nil
}
