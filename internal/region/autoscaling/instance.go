// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"
	ec2sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) instanceOps() []wire.Op {
	return []wire.Op{
		wire.Operation("TerminateInstanceInAutoScalingGroup", s.terminateMember),
		record.Read(s.book, "DescribeAutoScalingInstances", s.describeInstances),
		record.Read(s.book, "DescribeScalingActivities", s.describeActivities),
		record.Write(s.book, "SetInstanceProtection", s.protect),
		record.Write(s.book, "SetInstanceHealth", s.setHealth),
		record.Write(s.book, "EnterStandby", s.enterStandby),
		record.Write(s.book, "ExitStandby", s.exitStandby),
		record.Write(s.book, "DetachInstances", s.detach),
	}
}

func (s *Service) terminateMember(ctx context.Context, in *sdk.TerminateInstanceInAutoScalingGroupInput) (*sdk.TerminateInstanceInAutoScalingGroupOutput, error) {
	return record.Order(s.book, func(in *sdk.TerminateInstanceInAutoScalingGroupInput) (*sdk.TerminateInstanceInAutoScalingGroupOutput, error) {
		id := record.Str(in.InstanceId)
		g, i := s.member(id)
		if g == nil {
			return nil, validation("Instance Id not found - No managed instance found for instance ID: %s", id)
		}
		if in.ShouldDecrementDesiredCapacity == nil {
			return nil, validation("ShouldDecrementDesiredCapacity is required")
		}
		if *in.ShouldDecrementDesiredCapacity {
			if *g.Shape.DesiredCapacity <= *g.Shape.MinSize {
				return nil, validation("Currently, desiredSize equals minSize (%d). Terminating instance without replacement will violate group's min size constraint.", *g.Shape.MinSize)
			}
			g.Shape.DesiredCapacity = new(*g.Shape.DesiredCapacity - 1)
		}
		a := s.retire(ctx, g, i, "instance "+id+" was taken out of service in response to a user request.")
		return &sdk.TerminateInstanceInAutoScalingGroupOutput{Activity: a}, nil
	}, in)
}

// retire takes an instance out of its target groups and terminates it.
func (s *Service) retire(ctx context.Context, g *group, i *sdk.Instance, cause string) *sdk.Activity {
	id := record.Str(i.InstanceId)
	a := s.act(g, "Terminating EC2 instance: "+id, "At "+s.cfg.Now().UTC().Format("2006-01-02T15:04:05Z")+" "+cause)
	a.Details = new(id)
	i.LifecycleState = new(sdk.LifecycleStateTerminating)
	s.leave(g, id)
	if _, err := s.cfg.Cloud.TerminateInstances(ctx, &ec2sdk.TerminateInstancesInput{InstanceIds: []*string{&id}}); err != nil {
		s.cfg.Log.ErrorContext(ctx, "an instance could not be terminated", slog.String("instance", id), slog.Any("error", err))
	}
	s.book.Dirty()
	return a
}

func (s *Service) describeInstances(in *sdk.DescribeAutoScalingInstancesInput) (*sdk.DescribeAutoScalingInstancesOutput, error) {
	all, wanted := map[string]*sdk.InstanceDetails{}, record.Strs(in.InstanceIds)
	for name, g := range s.st.Groups {
		for _, i := range g.Shape.Instances {
			if len(wanted) == 0 || slices.Contains(wanted, record.Str(i.InstanceId)) {
				all[record.Str(i.InstanceId)] = &sdk.InstanceDetails{
					AutoScalingGroupName: new(name), InstanceId: i.InstanceId, AvailabilityZone: i.AvailabilityZone, InstanceType: i.InstanceType,
					HealthStatus:   new(map[string]string{"Healthy": "HEALTHY", "Unhealthy": "UNHEALTHY"}[record.Str(i.HealthStatus)]),
					LifecycleState: i.LifecycleState, LaunchTemplate: i.LaunchTemplate, ProtectedFromScaleIn: i.ProtectedFromScaleIn,
				}
			}
		}
	}
	keys, next, err := page(record.Keys(all), in.MaxRecords, in.NextToken)
	out := &sdk.DescribeAutoScalingInstancesOutput{NextToken: next, AutoScalingInstances: []*sdk.InstanceDetails{}}
	for _, k := range keys {
		out.AutoScalingInstances = append(out.AutoScalingInstances, all[k])
	}
	return out, err
}

func (s *Service) describeActivities(in *sdk.DescribeScalingActivitiesInput) (*sdk.DescribeScalingActivitiesOutput, error) {
	var found []*sdk.Activity
	if in.AutoScalingGroupName != nil {
		g, err := s.group(in.AutoScalingGroupName)
		if err != nil {
			return nil, err
		}
		found = g.Activities
	} else {
		for _, name := range record.Keys(s.st.Groups) {
			found = append(found, s.st.Groups[name].Activities...)
		}
	}
	wanted := record.Strs(in.ActivityIds)
	found = slices.DeleteFunc(slices.Clone(found), func(a *sdk.Activity) bool {
		return len(wanted) > 0 && !slices.Contains(wanted, record.Str(a.ActivityId))
	})
	slices.SortStableFunc(found, func(a, b *sdk.Activity) int { return cmp.Compare(b.StartTime.UnixNano(), a.StartTime.UnixNano()) })
	n := int(*orNumber(in.MaxRecords, 100))
	return &sdk.DescribeScalingActivitiesOutput{Activities: found[:min(max(n, 0), len(found))]}, nil
}

// members finds instances of one group, all or none.
func (s *Service) members(name *string, ids []*string) (*group, []*sdk.Instance, error) {
	g, err := s.group(name)
	if err != nil {
		return nil, nil, err
	}
	var out []*sdk.Instance
	for _, id := range record.Strs(ids) {
		owner, i := s.member(id)
		if owner != g {
			return nil, nil, validation("The instance %s is not part of Auto Scaling group %s.", id, record.Str(name))
		}
		out = append(out, i)
	}
	return g, out, nil
}

func (s *Service) protect(in *sdk.SetInstanceProtectionInput) (*sdk.SetInstanceProtectionOutput, error) {
	_, found, err := s.members(in.AutoScalingGroupName, in.InstanceIds)
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		i.ProtectedFromScaleIn = in.ProtectedFromScaleIn
	}
	return &sdk.SetInstanceProtectionOutput{}, nil
}

func (s *Service) setHealth(in *sdk.SetInstanceHealthInput) (*sdk.SetInstanceHealthOutput, error) {
	g, i := s.member(record.Str(in.InstanceId))
	if g == nil {
		return nil, validation("Instance Id not found - No managed instance found for instance ID: %s", record.Str(in.InstanceId))
	}
	if h := record.Str(in.HealthStatus); h != healthy && h != unhealthy {
		return nil, validation("Health status '%s' must be %s or %s", h, healthy, unhealthy)
	}
	i.HealthStatus = in.HealthStatus
	return &sdk.SetInstanceHealthOutput{}, nil
}

func (s *Service) enterStandby(in *sdk.EnterStandbyInput) (*sdk.EnterStandbyOutput, error) {
	g, found, err := s.members(in.AutoScalingGroupName, in.InstanceIds)
	if err != nil {
		return nil, err
	}
	out := &sdk.EnterStandbyOutput{}
	for _, i := range found {
		if record.Str(i.LifecycleState) != sdk.LifecycleStateInService {
			return nil, validation("The instance %s is not in InService.", record.Str(i.InstanceId))
		}
	}
	if in.ShouldDecrementDesiredCapacity != nil && *in.ShouldDecrementDesiredCapacity {
		if *g.Shape.DesiredCapacity-int64(len(found)) < *g.Shape.MinSize {
			return nil, validation("AutoScalingGroup %s has min-size=%d and desired-capacity=%d. To place instances into standby, the minimum size must allow it.",
				record.Str(in.AutoScalingGroupName), *g.Shape.MinSize, *g.Shape.DesiredCapacity)
		}
		g.Shape.DesiredCapacity = new(*g.Shape.DesiredCapacity - int64(len(found)))
	}
	for _, i := range found {
		i.LifecycleState = new(sdk.LifecycleStateStandby)
		s.leave(g, record.Str(i.InstanceId))
		out.Activities = append(out.Activities, s.act(g, "Moving EC2 instance to Standby: "+record.Str(i.InstanceId), "a user request"))
	}
	return out, nil
}

func (s *Service) exitStandby(in *sdk.ExitStandbyInput) (*sdk.ExitStandbyOutput, error) {
	g, found, err := s.members(in.AutoScalingGroupName, in.InstanceIds)
	if err != nil {
		return nil, err
	}
	out := &sdk.ExitStandbyOutput{}
	for _, i := range found {
		if record.Str(i.LifecycleState) != sdk.LifecycleStateStandby {
			return nil, validation("The instance %s is not in Standby.", record.Str(i.InstanceId))
		}
	}
	g.Shape.DesiredCapacity = new(*g.Shape.DesiredCapacity + int64(len(found)))
	g.Shape.MaxSize = new(max(*g.Shape.MaxSize, *g.Shape.DesiredCapacity))
	for _, i := range found {
		i.LifecycleState = new(sdk.LifecycleStatePending)
		out.Activities = append(out.Activities, s.act(g, "Moving EC2 instance out of Standby: "+record.Str(i.InstanceId), "a user request"))
	}
	return out, nil
}

func (s *Service) detach(in *sdk.DetachInstancesInput) (*sdk.DetachInstancesOutput, error) {
	g, found, err := s.members(in.AutoScalingGroupName, in.InstanceIds)
	if err != nil {
		return nil, err
	}
	if in.ShouldDecrementDesiredCapacity != nil && *in.ShouldDecrementDesiredCapacity {
		if *g.Shape.DesiredCapacity-int64(len(found)) < *g.Shape.MinSize {
			return nil, validation("Detaching would leave fewer than the minimum size of %d", *g.Shape.MinSize)
		}
		g.Shape.DesiredCapacity = new(*g.Shape.DesiredCapacity - int64(len(found)))
	}
	out := &sdk.DetachInstancesOutput{}
	for _, i := range found {
		id := record.Str(i.InstanceId)
		s.leave(g, id)
		g.drop(id)
		out.Activities = append(out.Activities, s.act(g, "Detaching EC2 instance: "+id, "a user request"))
	}
	return out, nil
}
