// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"
	ec2sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) warmPoolOps() []wire.Operation {
	return []wire.Operation{
		state.WriteOperation(s.store, "PutWarmPool", s.putWarmPool),
		state.WriteOperation(s.store, "DeleteWarmPool", s.deleteWarmPool),
		state.ReadOperation(s.store, "DescribeWarmPool", s.describeWarmPool),
	}
}

// putWarmPool replaces the whole configuration of a warm pool; fields that the request leaves out get AWS's
// defaults.
func (s *Service) putWarmPool(in *sdk.PutWarmPoolInput) (*sdk.PutWarmPoolOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}

	c := &sdk.WarmPoolConfiguration{
		MinSize:                  numberOrDefault(in.MinSize, 0),
		PoolState:                textOrDefault(in.PoolState, sdk.WarmPoolStateStopped),
		InstanceReusePolicy:      in.InstanceReusePolicy,
		MaxGroupPreparedCapacity: in.MaxGroupPreparedCapacity,
	}
	if c.MaxGroupPreparedCapacity != nil && *c.MaxGroupPreparedCapacity == -1 {
		c.MaxGroupPreparedCapacity = nil
	}

	switch {
	case g.Deleting:
		return nil, newErrorf(codeScalingActivityInProgress, "The group is being deleted")
	case g.Shape.MixedInstancesPolicy != nil:
		return nil, validationError(
			"You can't add a warm pool to an Auto Scaling group that has a mixed instances policy.",
		)

	case *c.MinSize < 0:
		return nil, validationError("MinSize must not be negative")
	case !slices.Contains([]string{sdk.WarmPoolStateStopped, sdk.WarmPoolStateRunning}, *c.PoolState):
		return nil, validationError(
			"This region supports warm pools that are Stopped or Running, not '%s'",
			*c.PoolState,
		)

	case c.MaxGroupPreparedCapacity != nil && *c.MaxGroupPreparedCapacity < *g.Shape.MinSize:
		return nil, validationError("MaxGroupPreparedCapacity must not be less than the group's MinSize")
	}

	g.Shape.WarmPoolConfiguration = c

	return &sdk.PutWarmPoolOutput{}, nil
}

func (s *Service) deleteWarmPool(in *sdk.DeleteWarmPoolInput) (*sdk.DeleteWarmPoolOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	switch {
	case err != nil:
		return nil, err
	case g.Shape.WarmPoolConfiguration == nil:
		return nil, validationError(
			"No warm pool found for Auto Scaling group %s",
			sdkshape.String(in.AutoScalingGroupName),
		)

	case len(g.Warm) > 0 && !isTrue(in.ForceDelete):
		return nil, newErrorf(
			codeResourceInUse,
			"You cannot delete a warm pool while there are instances in it.",
		)
	}

	g.clearWarmPool()

	return &sdk.DeleteWarmPoolOutput{}, nil
}

func (s *Service) describeWarmPool(in *sdk.DescribeWarmPoolInput) (*sdk.DescribeWarmPoolOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}

	n, err := parsePageSize(in.MaxRecords, pageSizes{usual: defaultPageSize, most: 50})
	if err != nil {
		return nil, err
	}

	key := func(i *sdk.Instance) string { return sdkshape.String(i.InstanceId) }
	page, next, err := sdkshape.PaginateList(g.Warm, key, n, in.NextToken, invalidToken(in.NextToken))

	return &sdk.DescribeWarmPoolOutput{
		WarmPoolConfiguration: g.Shape.WarmPoolConfiguration,
		Instances:             page,
		NextToken:             next,
	}, err
}

// clearWarmPool removes the warm pool of a group. The next reconciliation terminates its instances.
func (g *group) clearWarmPool() {
	g.Shape.WarmPoolConfiguration = nil
	g.Shape.WarmPoolSize = nil
}

// The prefixes and states of instances in a warm pool: Warmed: is followed by the state of the pool.
const (
	warmPending  = "Warmed:Pending"
	warmedPrefix = "Warmed:"
)

// syncWarmPoolStates updates the instances of a warm pool from their states in EC2. It stops those that have
// booted if the pool keeps them stopped.
func (s *Service) syncWarmPoolStates(g *group) {
	for _, i := range slices.Clone(g.Warm) {
		id := sdkshape.String(i.InstanceId)
		f, found := s.cfg.EC2.InstanceInfo(id)
		if !found || f.State == ec2sdk.InstanceStateNameTerminated ||
			f.State == ec2sdk.InstanceStateNameShuttingDown {
			g.removeWarmInstance(id)
			s.store.MarkChanged()
			continue
		}

		lifecycle := strings.TrimSuffix(sdkshape.String(i.LifecycleState), proceedSuffix)
		if g.Shape.WarmPoolConfiguration == nil || lifecycle != warmPending {
			continue
		}

		stopped := *g.Shape.WarmPoolConfiguration.PoolState == sdk.WarmPoolStateStopped

		switch {
		case f.State == ec2sdk.InstanceStateNameRunning && stopped:
			s.tryInstanceAction(i, s.cfg.EC2.StopInstance)
		case f.State == ec2sdk.InstanceStateNameRunning,
			f.State == ec2sdk.InstanceStateNameStopped && stopped:
			i.LifecycleState = new(warmedPrefix + *g.Shape.WarmPoolConfiguration.PoolState)
			s.completeActivity(g, id)
		}
	}
}

// tryInstanceAction stops or starts an instance of a warm pool. It logs an error and returns false if that
// fails.
func (s *Service) tryInstanceAction(i *sdk.Instance, do func(id string) error) bool {
	id := sdkshape.String(i.InstanceId)
	err := do(id)
	if err != nil {
		s.cfg.Log.Warn(
			"failed to stop or start an instance of a warm pool",
			slog.String("instance", id),
			slog.Any("error", err),
		)
	}

	return err == nil
}

// removeWarmInstance removes an instance from the warm pool.
func (g *group) removeWarmInstance(id string) {
	g.Warm = slices.DeleteFunc(
		g.Warm,
		func(i *sdk.Instance) bool { return sdkshape.String(i.InstanceId) == id },
	)
}

// warmPoolSize returns the desired number of instances in the warm pool: the prepared capacity less the
// desired capacity of the group, and at least the pool's own minimum.
func (g *group) warmPoolSize() int {
	c := g.Shape.WarmPoolConfiguration
	if c == nil || g.Deleting {
		return 0
	}

	return int(
		max(
			*c.MinSize,
			*numberOrDefault(c.MaxGroupPreparedCapacity, *g.Shape.MaxSize)-*g.Shape.DesiredCapacity,
		),
	)
}

// scaleWarmPool launches the instances that the warm pool lacks, once the group has its own, and terminates
// those that are too many.
func (s *Service) scaleWarmPool(ctx context.Context, g *group) {
	size := g.warmPoolSize()
	for len(g.usableWarm()) < size && s.mayLaunchWarm(g) {
		a := s.startActivity(
			g,
			"Launching a new EC2 instance into the warm pool",
			"an instance was started in response to a difference between the warm pool's desired and actual size.",
		)

		i, err := s.tryLaunch(g)
		if err != nil {
			s.delayNextLaunch(g)
			a.StatusCode = new(sdk.ScalingActivityStatusCodeFailed)
			a.StatusMessage = new(err.Error())
			return
		}

		a.Details = i.InstanceId
		i.LifecycleState = s.pendingState(g, i, warmPending)
		s.setTargetLifecycleState(i, warmedPrefix+*g.Shape.WarmPoolConfiguration.PoolState)
		g.Warm = append(g.Warm, i)
		s.store.MarkChanged()
	}

	for _, i := range slices.Backward(g.usableWarm()) {
		if len(g.usableWarm()) > size && s.beginTermination(g, i) {
			s.terminateEC2Instance(ctx, sdkshape.String(i.InstanceId))
		}
	}
}

// usableWarm returns the instances of the warm pool that are not terminating.
func (g *group) usableWarm() []*sdk.Instance {
	return slices.DeleteFunc(slices.Clone(g.Warm), isTerminating)
}

// mayLaunchWarm reports whether a group may launch into its warm pool: it has its desired capacity, and
// launching is neither suspended nor delayed after a failure.
func (s *Service) mayLaunchWarm(g *group) bool {
	return len(g.countedInstances()) >= int(*g.Shape.DesiredCapacity) &&
		!g.isSuspended("Launch") &&
		!g.NotBefore.After(s.cfg.Now())
}

// takeWarmInstance moves an instance from the warm pool into the group. It returns false if none is ready.
func (s *Service) takeWarmInstance(g *group) bool {
	for _, i := range g.Warm {
		id := sdkshape.String(i.InstanceId)
		lifecycle := sdkshape.String(i.LifecycleState)
		if isTerminating(i) || strings.HasPrefix(lifecycle, warmPending) ||
			lifecycle == warmedPrefix+sdk.WarmPoolStateStopped &&
				!s.tryInstanceAction(i, s.cfg.EC2.StartInstance) {
			continue
		}

		a := s.startActivity(
			g,
			"Launching a new EC2 instance from warm pool: "+id,
			"an instance was taken from the warm pool.",
		)

		a.Details = new(id)
		g.removeWarmInstance(id)
		i.LifecycleState = s.pendingState(g, i, sdk.LifecycleStatePending)
		s.setTargetLifecycleState(i, sdk.LifecycleStateInService)
		g.Shape.Instances = append(g.Shape.Instances, i)
		s.store.MarkChanged()

		return true
	}

	return false
}

// reusesInstances reports whether an instance that the group no longer needs returns to the warm pool.
func (g *group) reusesInstances() bool {
	c := g.Shape.WarmPoolConfiguration

	return !g.Deleting && c != nil && c.InstanceReusePolicy != nil && isTrue(c.InstanceReusePolicy.ReuseOnScaleIn)
}

// returnToPool moves an instance that the group no longer needs into its warm pool. It waits there for the hooks of a termination
// first, in the state in which new instances of the pool wait for those of a launch.
func (s *Service) returnToPool(g *group, i *sdk.Instance) {
	id := sdkshape.String(i.InstanceId)
	a := s.startActivity(
		g,
		"Returning EC2 instance to the warm pool: "+id,
		"an instance was returned to the warm pool to shrink the capacity of the group.",
	)

	a.Details = new(id)
	s.deregisterInstance(g, id)
	g.removeInstance(id)
	s.setTargetLifecycleState(i, warmedPrefix+*g.Shape.WarmPoolConfiguration.PoolState)
	i.LifecycleState = new(warmPending)
	m := movement{transition: terminating, origin: placeGroup, destination: placePool}
	if s.startActions(g, id, m) {
		i.LifecycleState = new(warmPending + waitSuffix)
	}

	g.Warm = append(g.Warm, i)
	s.store.MarkChanged()
}
