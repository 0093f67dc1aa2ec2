// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"
	ec2sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// The values of an instance's HealthStatus.
const (
	healthy   = "Healthy"
	unhealthy = "Unhealthy"
)

// Reconcile brings every group closer to its desired state once. It returns an error only if the state could
// not be saved. Run calls it; tests may call it.
func (s *Service) Reconcile(ctx context.Context) error {
	return s.store.WithLock(func() error {
		for _, name := range sdkshape.SortedKeys(s.st.Groups) {
			g := s.st.Groups[name]
			s.syncInstanceStates(g)
			s.syncWarmPoolStates(g)
			lifecycleHandlers{s}.proceedLifecycle(ctx, g)
			lifecycleHandlers{s}.replaceAtRisk(ctx, g)
			s.replaceUnhealthy(ctx, g)
			s.scaleToDesired(ctx, g)
			s.scaleWarmPool(ctx, g)
			s.registerInstances(g)
			if g.Deleting && len(g.Shape.Instances)+len(g.Warm) == 0 {
				delete(s.st.Groups, name)
				s.store.MarkChanged()
			}
		}

		return nil
	})
}

// removeInstance removes an instance and what is stored about it from the group.
func (g *group) removeInstance(id string) {
	g.Shape.Instances = slices.DeleteFunc(
		g.Shape.Instances,
		func(i *sdk.Instance) bool { return sdkshape.String(i.InstanceId) == id },
	)

	delete(g.Since, id)
	delete(g.Spot, id)
	delete(g.Registered, id)
	delete(g.Actions, id)
	delete(g.AtRisk, id)
}

// startActivity adds an activity in progress to a group, which keeps the newest 100.
func (s *Service) startActivity(g *group, what, cause string) *sdk.Activity {
	now := s.cfg.Now().UTC()
	a := &sdk.Activity{
		ActivityId:           new(sdkshape.RandomHex(s.cfg.Rand, 32)),
		AutoScalingGroupName: g.Shape.AutoScalingGroupName,
		AutoScalingGroupARN:  g.Shape.AutoScalingGroupARN,
		Description:          new(what),
		Cause:                new(cause),
		StartTime:            new(now),
		StatusCode:           new(sdk.ScalingActivityStatusCodeInProgress),
		Progress:             new(int64(0)),
	}

	g.Activities = append([]*sdk.Activity{a}, g.Activities...)
	g.Activities = g.Activities[:min(len(g.Activities), 100)]
	s.store.MarkChanged()

	return a
}

// completeActivity marks the activity of an instance that is in progress as successful.
func (s *Service) completeActivity(g *group, id string) {
	for _, a := range g.Activities {
		if sdkshape.String(a.Details) == id &&
			sdkshape.String(a.StatusCode) == sdk.ScalingActivityStatusCodeInProgress {
			a.StatusCode = new(sdk.ScalingActivityStatusCodeSuccessful)
			a.Progress = new(int64(100))
			a.EndTime = new(s.cfg.Now().UTC())
			emitCompletion(s, g, a)
		}
	}

	s.store.MarkChanged()
}

// syncInstanceStates updates the instances of a group from their states in EC2.
func (s *Service) syncInstanceStates(g *group) {
	for _, i := range slices.Clone(g.Shape.Instances) {
		id := sdkshape.String(i.InstanceId)
		f, found := s.cfg.EC2.InstanceInfo(id)
		if !found || f.State == ec2sdk.InstanceStateNameTerminated ||
			f.State == ec2sdk.InstanceStateNameShuttingDown {
			s.markInstanceLost(g, i)
			s.removeIfEnded(g, f, id)

			continue
		}

		switch state := sdkshape.String(i.LifecycleState); {
		case f.State == ec2sdk.InstanceStateNameRunning &&
			strings.TrimSuffix(state, proceedSuffix) == sdk.LifecycleStatePending:
			i.LifecycleState = new(sdk.LifecycleStateInService)
			if g.Since == nil {
				g.Since = map[string]time.Time{}
			}

			g.Since[id] = s.cfg.Now()
			g.Failures = 0
			s.completeActivity(g, id)

		case state == sdk.LifecycleStateInService &&
			sdkshape.String(i.HealthStatus) == healthy &&
			s.failsHealthCheck(g, f):
			i.HealthStatus = new(unhealthy)
			s.store.MarkChanged()
		}
	}
}

// removeIfEnded removes an instance that EC2 has terminated from its group, once no hook waits for it.
func (s *Service) removeIfEnded(g *group, f ec2.InstanceInfo, id string) {
	if f.State != ec2sdk.InstanceStateNameShuttingDown && len(g.Actions[id]) == 0 {
		s.completeActivity(g, id)
		g.removeInstance(id)
	}
}

// markInstanceLost records, once, that an instance was terminated by someone other than the group.
func (s *Service) markInstanceLost(g *group, i *sdk.Instance) {
	id := sdkshape.String(i.InstanceId)
	state := sdkshape.String(i.LifecycleState)
	if isTerminating(i) {
		return
	}

	if strings.HasPrefix(state, sdk.LifecycleStatePending) {
		s.delayNextLaunch(g) // it never ran: the next launch would probably fail as well
	}

	a := s.startActivity(
		g,
		"Terminating EC2 instance: "+id,
		"an EC2 health check indicated that the instance was terminated.",
	)

	a.Details = new(id)
	i.HealthStatus = new(unhealthy)
	s.deregisterInstance(g, id)
	s.beginTermination(g, i) // an instance that ended by itself waits for its hooks as well
}

// failsHealthCheck reports whether an instance fails a health check. A machine that died counts at once; the
// health check of a target group counts after the grace period.
func (s *Service) failsHealthCheck(g *group, f ec2.InstanceInfo) bool {
	if g.isSuspended("HealthCheck") {
		return false
	}

	if f.Impaired || f.State != ec2sdk.InstanceStateNameRunning {
		return true
	}

	grace := time.Duration(*g.Shape.HealthCheckGracePeriod) * time.Second
	if !strings.Contains(sdkshape.String(g.Shape.HealthCheckType), "ELB") || s.cfg.Now().Sub(g.Since[f.ID]) < grace {
		return false
	}

	return slices.ContainsFunc(
		g.Registered[f.ID],
		func(arn string) bool { return s.cfg.TargetGroups.TargetState(arn, f.ID) == "unhealthy" },
	)
}

// replaceUnhealthy terminates unhealthy instances; scaleToDesired then launches others.
func (s *Service) replaceUnhealthy(ctx context.Context, g *group) {
	if g.isSuspended("ReplaceUnhealthy") || g.isSuspended("Terminate") {
		return
	}

	for _, i := range slices.Clone(g.Shape.Instances) {
		if sdkshape.String(i.HealthStatus) == unhealthy &&
			sdkshape.String(i.LifecycleState) == sdk.LifecycleStateInService || failedToStart(s, i) {
			s.terminateGroupInstance(
				ctx,
				g,
				i,
				"an instance was taken out of service in response to a health check failure.",
			)
		}
	}
}

// failedToStart reports whether an instance from the warm pool is stopped although it was started: EC2 could not start it.
func failedToStart(s *Service, i *sdk.Instance) bool {
	if !strings.HasPrefix(sdkshape.String(i.LifecycleState), sdk.LifecycleStatePending) {
		return false
	}

	f, found := s.cfg.EC2.InstanceInfo(sdkshape.String(i.InstanceId))

	return found && f.State == ec2sdk.InstanceStateNameStopped
}

// countedInstances returns the instances that count towards the desired capacity.
func (g *group) countedInstances() []*sdk.Instance {
	return slices.DeleteFunc(slices.Clone(g.Shape.Instances), func(i *sdk.Instance) bool {
		return isTerminating(i) ||
			sdkshape.String(i.LifecycleState) == sdk.LifecycleStateStandby ||
			g.AtRisk[sdkshape.String(i.InstanceId)]
	})
}

// scaleToDesired launches or terminates instances until the group has its desired capacity.
func (s *Service) scaleToDesired(ctx context.Context, g *group) {
	have := g.countedInstances()
	missing := int(*g.Shape.DesiredCapacity) - len(have)
	switch {
	case missing > 0 && !g.isSuspended("Launch") && !g.NotBefore.After(s.cfg.Now()):
		for range missing {
			if !s.takeWarmInstance(g) && !s.launchInstance(g) {
				return
			}
		}

	case missing < 0 && !g.isSuspended("Terminate"):
		for range -missing {
			i := selectInstanceToTerminate(g.countedInstances(), g.Deleting)
			if i == nil {
				return
			}

			if g.reusesInstances() {
				s.returnToPool(g, i)
				continue
			}

			s.terminateGroupInstance(
				ctx,
				g,
				i,
				fmt.Sprintf(
					"an instance was terminated to shrink the capacity from %d to %d.",
					len(have),
					*g.Shape.DesiredCapacity,
				),
			)
		}
	}
}

// selectInstanceToTerminate returns the instance to terminate when a group shrinks: in the zone with the most
// instances, the one of the oldest version of the launch template, and the oldest of those. It skips
// protected instances unless the group is being deleted. It returns nil if there is none.
func selectInstanceToTerminate(have []*sdk.Instance, deleting bool) *sdk.Instance {
	zones := map[string]int{}
	for _, i := range have {
		zones[sdkshape.String(i.AvailabilityZone)]++
	}

	open := slices.DeleteFunc(
		have,
		func(i *sdk.Instance) bool { return *i.ProtectedFromScaleIn && !deleting },
	)
	if len(open) == 0 {
		return nil
	}

	return slices.MinFunc(open, func(a, b *sdk.Instance) int {
		return cmp.Or(
			cmp.Compare(zones[sdkshape.String(b.AvailabilityZone)], zones[sdkshape.String(a.AvailabilityZone)]),
			cmp.Compare(templateVersion(a), templateVersion(b)),
		)
	})
}

// templateVersion returns the version of the launch template of an instance, or 0.
func templateVersion(i *sdk.Instance) int {
	n := 0
	if i.LaunchTemplate != nil {
		_, _ = fmt.Sscan(sdkshape.String(i.LaunchTemplate.Version), &n)
	}

	return n
}

// setTargetLifecycleState sets the target lifecycle state that an instance reads from its metadata.
func (s *Service) setTargetLifecycleState(i *sdk.Instance, state string) {
	if err := s.cfg.EC2.SetTargetLifecycleState(sdkshape.String(i.InstanceId), state); err != nil {
		s.cfg.Log.Warn(
			"failed to set the target lifecycle state of an instance",
			slog.String("instance", sdkshape.String(i.InstanceId)),
			slog.Any("error", err),
		)
	}
}
