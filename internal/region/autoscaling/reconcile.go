// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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

// isSuspended reports whether a process of the group is suspended.
func (g *group) isSuspended(process string) bool {
	return slices.ContainsFunc(
		g.Shape.SuspendedProcesses,
		func(p *sdk.SuspendedProcess) bool { return sdkshape.String(p.ProcessName) == process },
	)
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
			if f.State != ec2sdk.InstanceStateNameShuttingDown {
				s.completeActivity(g, id)
				g.removeInstance(id)
			}

			continue
		}

		switch state := sdkshape.String(i.LifecycleState); {
		case f.State == ec2sdk.InstanceStateNameRunning && state == sdk.LifecycleStatePending:
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

// markInstanceLost records, once, that an instance was terminated by someone other than the group.
func (s *Service) markInstanceLost(g *group, i *sdk.Instance) {
	id := sdkshape.String(i.InstanceId)
	state := sdkshape.String(i.LifecycleState)
	if state == sdk.LifecycleStateTerminating {
		return
	}

	if state == sdk.LifecycleStatePending {
		s.delayNextLaunch(g) // it never ran: the next launch would probably fail as well
	}

	a := s.startActivity(
		g,
		"Terminating EC2 instance: "+id,
		"an EC2 health check indicated that the instance was terminated.",
	)

	a.Details = new(id)
	i.LifecycleState = new(sdk.LifecycleStateTerminating)
	i.HealthStatus = new(unhealthy)
	s.deregisterInstance(g, id)
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
	if sdkshape.String(g.Shape.HealthCheckType) != "ELB" || s.cfg.Now().Sub(g.Since[f.ID]) < grace {
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
			sdkshape.String(i.LifecycleState) == sdk.LifecycleStateInService {
			s.terminateGroupInstance(
				ctx,
				g,
				i,
				"an instance was taken out of service in response to a health check failure.",
			)
		}
	}
}

// countedInstances returns the instances that count towards the desired capacity.
func (g *group) countedInstances() []*sdk.Instance {
	return slices.DeleteFunc(slices.Clone(g.Shape.Instances), func(i *sdk.Instance) bool {
		return slices.Contains(
			[]string{sdk.LifecycleStateTerminating, sdk.LifecycleStateStandby},
			sdkshape.String(i.LifecycleState),
		)
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

// selectSubnet returns the subnet of the next instance: in the zone with the fewest instances, and the first
// one of those.
func (s *Service) selectSubnet(g *group) (ec2.SubnetPlacement, error) {
	places, err := s.cfg.EC2.SubnetPlacements(parseSubnetIDs(g.Shape.VPCZoneIdentifier)...)
	if err != nil {
		return ec2.SubnetPlacement{}, err
	}

	zones := map[string]int{}
	for _, i := range g.countedInstances() {
		zones[sdkshape.String(i.AvailabilityZone)]++
	}

	return slices.MinFunc(
		places,
		func(a, b ec2.SubnetPlacement) int { return cmp.Compare(zones[a.Zone], zones[b.Zone]) },
	), nil
}

// launchInstance launches one instance. It returns false if that failed; the group then waits, longer after
// each failure in a row.
func (s *Service) launchInstance(g *group) bool {
	a := s.startActivity(
		g,
		"Launching a new EC2 instance",
		fmt.Sprintf(
			"an instance was started in response to a difference between desired and actual capacity (%d).",
			*g.Shape.DesiredCapacity,
		),
	)

	i, err := s.tryLaunch(g)
	if err != nil {
		s.delayNextLaunch(g)
		a.StatusCode = new(sdk.ScalingActivityStatusCodeFailed)
		a.StatusMessage = new(err.Error())
		a.EndTime = new(s.cfg.Now().UTC())

		a.Progress = new(int64(100))
		a.Description = new("Launching a new EC2 instance.  Status Reason: " + err.Error())

		s.cfg.Log.Warn(
			"failed to launch an instance of a group",
			slog.String("group", sdkshape.String(g.Shape.AutoScalingGroupName)),
			slog.Any("error", err),
		)

		return false
	}

	a.Description = new("Launching a new EC2 instance: " + sdkshape.String(i.InstanceId))
	a.Details = i.InstanceId
	g.Shape.Instances = append(g.Shape.Instances, i)
	s.setTargetLifecycleState(i, sdk.LifecycleStateInService)
	s.store.MarkChanged()

	return true
}

// delayNextLaunch delays the next launch of a group by 2 s, doubled for each further failure in a row, up to
// a minute.
func (s *Service) delayNextLaunch(g *group) {
	g.Failures++
	g.NotBefore = s.cfg.Now().Add(min(time.Second<<min(g.Failures, 6), time.Minute))
}

// tryLaunch launches an instance by the first launch option that succeeds. It returns the errors of all if
// none does.
func (s *Service) tryLaunch(g *group) (*sdk.Instance, error) {
	place, err := s.selectSubnet(g)
	if err != nil {
		return nil, err
	}

	var failures []error

	for _, c := range g.launchOptions() {
		i, err := s.runInstance(g, place, c)
		if err == nil {
			return i, nil
		}

		failures = append(failures, err)
	}

	return nil, errors.Join(failures...)
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

// runInstance launches one instance by a launch option.
func (s *Service) runInstance(g *group, place ec2.SubnetPlacement, c launchOption) (*sdk.Instance, error) {
	f, err := s.cfg.EC2.LaunchTemplateInfo(
		sdkshape.String(c.template.LaunchTemplateId),
		"",
		sdkshape.String(c.template.Version),
	)
	if err != nil {
		return nil, err
	}

	in := &ec2sdk.RunInstancesInput{
		MinCount:    new(int64(1)),
		MaxCount:    new(int64(1)),
		SubnetId:    new(place.Subnet),
		ClientToken: new(sdkshape.RandomHex(s.cfg.Rand, 32)),
		LaunchTemplate: &ec2sdk.LaunchTemplateSpecification{
			LaunchTemplateId: new(f.ID),
			Version:          new(formatVersion(f.Version)),
		},
		InstanceMarketOptions: c.marketOptions,
	}

	kind := f.InstanceType
	if c.instanceType != "" {
		kind = c.instanceType
		in.InstanceType = new(c.instanceType)
	}

	out, err := s.cfg.EC2.RunInstancesWithTags(in, g.launchTags(f))
	if err != nil {
		return nil, err
	}

	if c.marketOptions != nil {
		if g.Spot == nil {
			g.Spot = map[string]bool{}
		}

		g.Spot[sdkshape.String(out.Instances[0].InstanceId)] = true
	}

	return &sdk.Instance{
		InstanceId:           out.Instances[0].InstanceId,
		AvailabilityZone:     new(place.Zone),
		InstanceType:         new(kind),
		HealthStatus:         new(healthy),
		LifecycleState:       new(sdk.LifecycleStatePending),
		ProtectedFromScaleIn: new(*g.Shape.NewInstancesProtectedFromScaleIn),
		LaunchTemplate: &sdk.LaunchTemplateSpecification{
			LaunchTemplateId:   new(f.ID),
			LaunchTemplateName: new(f.Name),
			Version:            new(formatVersion(f.Version)),
		},
	}, nil
}

// launchTags returns the tags that the instances of a group have from the start.
func (g *group) launchTags(f ec2.LaunchTemplateInfo) map[string]string {
	tags := map[string]string{
		"aws:autoscaling:groupName": sdkshape.String(
			g.Shape.AutoScalingGroupName,
		),
		"aws:ec2launchtemplate:id":      f.ID,
		"aws:ec2launchtemplate:version": formatVersion(f.Version),
	}

	for k, t := range g.Tags {
		if t.Propagate {
			tags[k] = t.Value
		}
	}

	return tags
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
