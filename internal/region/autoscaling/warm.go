// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"context"
	"log/slog"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"
	ec2sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) warmOps() []wire.Op {
	return []wire.Op{
		record.Write(s.book, "PutWarmPool", s.putPool),
		record.Write(s.book, "DeleteWarmPool", s.deletePool),
		record.Read(s.book, "DescribeWarmPool", s.describePool),
	}
}

// putPool sets a warm pool's whole configuration; what is left out gets AWS's default.
func (s *Service) putPool(in *sdk.PutWarmPoolInput) (*sdk.PutWarmPoolOutput, error) {
	g, err := s.group(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}
	c := &sdk.WarmPoolConfiguration{
		MinSize: orNumber(in.MinSize, 0), PoolState: orText(in.PoolState, sdk.WarmPoolStateStopped), InstanceReusePolicy: in.InstanceReusePolicy,
		MaxGroupPreparedCapacity: in.MaxGroupPreparedCapacity,
	}
	if c.MaxGroupPreparedCapacity != nil && *c.MaxGroupPreparedCapacity == -1 {
		c.MaxGroupPreparedCapacity = nil
	}
	switch {
	case g.Deleting:
		return nil, wire.Errorf("ScalingActivityInProgress", "The group is being deleted")
	case g.Shape.MixedInstancesPolicy != nil:
		return nil, validation("You can't add a warm pool to an Auto Scaling group that has a mixed instances policy.")
	case *c.MinSize < 0:
		return nil, validation("MinSize must not be negative")
	case !slices.Contains([]string{sdk.WarmPoolStateStopped, sdk.WarmPoolStateRunning}, *c.PoolState):
		return nil, validation("This region keeps the machines of a warm pool Stopped or Running, not '%s'", *c.PoolState)
	case c.MaxGroupPreparedCapacity != nil && *c.MaxGroupPreparedCapacity < *g.Shape.MinSize:
		return nil, validation("MaxGroupPreparedCapacity must not be less than the group's MinSize")
	}
	g.Shape.WarmPoolConfiguration = c
	return &sdk.PutWarmPoolOutput{}, nil
}

func (s *Service) deletePool(in *sdk.DeleteWarmPoolInput) (*sdk.DeleteWarmPoolOutput, error) {
	g, err := s.group(in.AutoScalingGroupName)
	switch {
	case err != nil:
		return nil, err
	case g.Shape.WarmPoolConfiguration == nil:
		return nil, validation("No warm pool found for Auto Scaling group %s", record.Str(in.AutoScalingGroupName))
	case len(g.Warm) > 0 && (in.ForceDelete == nil || !*in.ForceDelete):
		return nil, wire.Errorf("ResourceInUse", "You cannot delete a warm pool while there are instances in it.")
	}
	g.dropPool()
	return &sdk.DeleteWarmPoolOutput{}, nil
}

func (s *Service) describePool(in *sdk.DescribeWarmPoolInput) (*sdk.DescribeWarmPoolOutput, error) {
	g, err := s.group(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}
	return &sdk.DescribeWarmPoolOutput{WarmPoolConfiguration: g.Shape.WarmPoolConfiguration, Instances: g.Warm}, nil
}

// dropPool ends a pool; its machines go with the next look at the group.
func (g *group) dropPool() { g.Shape.WarmPoolConfiguration, g.Shape.WarmPoolSize = nil, nil }

// The lifecycle states of a warm pool's instances, after the pool's own.
const (
	warmPending = "Warmed:Pending"
	warmed      = "Warmed:"
)

// observePool takes over what EC2 says about the pool's instances, and stops those that have run once.
func (s *Service) observePool(g *group) {
	for _, i := range slices.Clone(g.Warm) {
		id := record.Str(i.InstanceId)
		f, found := s.cfg.Cloud.Instance(id)
		if !found || f.State == ec2sdk.InstanceStateNameTerminated || f.State == ec2sdk.InstanceStateNameShuttingDown {
			g.cool(id)
			s.book.Dirty()
			continue
		}
		if g.Shape.WarmPoolConfiguration == nil || record.Str(i.LifecycleState) != warmPending {
			continue
		}
		stopped := *g.Shape.WarmPoolConfiguration.PoolState == sdk.WarmPoolStateStopped
		switch {
		case f.State == ec2sdk.InstanceStateNameRunning && stopped:
			s.try(i, s.cfg.Cloud.Stop)
		case f.State == ec2sdk.InstanceStateNameRunning, f.State == ec2sdk.InstanceStateNameStopped && stopped:
			i.LifecycleState = new(warmed + *g.Shape.WarmPoolConfiguration.PoolState)
			s.done(g, id)
		}
	}
}

func (s *Service) try(i *sdk.Instance, do func(id string) error) bool {
	id := record.Str(i.InstanceId)
	err := do(id)
	if err != nil {
		s.cfg.Log.Warn("an instance of a warm pool could not be stopped or started", slog.String("instance", id), slog.Any("error", err))
	}
	return err == nil
}

// cool takes an instance out of the pool.
func (g *group) cool(id string) {
	g.Warm = slices.DeleteFunc(g.Warm, func(i *sdk.Instance) bool { return record.Str(i.InstanceId) == id })
}

// poolSize is how many machines the pool is to have: what the prepared capacity leaves, at least its own minimum.
func (g *group) poolSize() int {
	c := g.Shape.WarmPoolConfiguration
	if c == nil || g.Deleting {
		return 0
	}
	return int(max(*c.MinSize, *orNumber(c.MaxGroupPreparedCapacity, *g.Shape.MaxSize)-*g.Shape.DesiredCapacity))
}

// fillPool launches what the pool lacks, once the group itself lacks nothing, and ends what is too much.
func (s *Service) fillPool(ctx context.Context, g *group) {
	size := g.poolSize()
	for len(g.Warm) < size && len(g.counted()) >= int(*g.Shape.DesiredCapacity) && !g.suspended("Launch") && !g.NotBefore.After(s.cfg.Now()) {
		a := s.act(g, "Launching a new EC2 instance into the warm pool", "an instance was started in response to a difference between the warm pool's desired and actual size.")
		i, err := s.tryLaunch(g)
		if err != nil {
			s.backOff(g)
			a.StatusCode, a.StatusMessage = new(sdk.ScalingActivityStatusCodeFailed), new(err.Error())
			return
		}
		a.Details, i.LifecycleState = i.InstanceId, new(warmPending)
		s.aim(i, warmed+*g.Shape.WarmPoolConfiguration.PoolState)
		g.Warm = append(g.Warm, i)
		s.book.Dirty()
	}
	for len(g.Warm) > size {
		i := g.Warm[len(g.Warm)-1]
		id := record.Str(i.InstanceId)
		if _, err := s.cfg.Cloud.TerminateInstances(ctx, &ec2sdk.TerminateInstancesInput{InstanceIds: []*string{&id}}); err != nil {
			s.cfg.Log.Warn("an instance of a warm pool could not be terminated", slog.String("instance", id), slog.Any("error", err))
			return
		}
		g.cool(id)
		s.book.Dirty()
	}
}

// takeWarm moves a machine of the pool into the group; false if none is ready.
func (s *Service) takeWarm(g *group) bool {
	for _, i := range g.Warm {
		id, state := record.Str(i.InstanceId), record.Str(i.LifecycleState)
		if state == warmPending || state == warmed+sdk.WarmPoolStateStopped && !s.try(i, s.cfg.Cloud.Start) {
			continue
		}
		a := s.act(g, "Launching a new EC2 instance from warm pool: "+id, "an instance was taken from the warm pool.")
		a.Details = new(id)
		g.cool(id)
		i.LifecycleState = new(sdk.LifecycleStatePending)
		s.aim(i, sdk.LifecycleStateInService)
		g.Shape.Instances = append(g.Shape.Instances, i)
		s.book.Dirty()
		return true
	}
	return false
}
