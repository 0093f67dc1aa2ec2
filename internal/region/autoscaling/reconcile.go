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
	"github.com/slipway-k8s/slipway/internal/region/record"
)

// An instance's health, in AWS's words.
const (
	healthy   = "Healthy"
	unhealthy = "Unhealthy"
)

// Reconcile looks at every group once and does what it lacks. Run calls it; tests may.
func (s *Service) Reconcile(ctx context.Context) error {
	return s.book.Do(func() error {
		for _, name := range record.Keys(s.st.Groups) {
			g := s.st.Groups[name]
			s.observe(g)
			s.observePool(g)
			s.replace(ctx, g)
			s.scale(ctx, g)
			s.fillPool(ctx, g)
			s.enroll(g)
			if g.Deleting && len(g.Shape.Instances)+len(g.Warm) == 0 {
				delete(s.st.Groups, name)
				s.book.Dirty()
			}
		}
		return nil
	})
}

func (g *group) suspended(process string) bool {
	return slices.ContainsFunc(g.Shape.SuspendedProcesses, func(p *sdk.SuspendedProcess) bool { return record.Str(p.ProcessName) == process })
}

func (g *group) drop(id string) {
	g.Shape.Instances = slices.DeleteFunc(g.Shape.Instances, func(i *sdk.Instance) bool { return record.Str(i.InstanceId) == id })
	delete(g.Since, id)
	delete(g.Spot, id)
	delete(g.Registered, id)
}

// act notes an activity of a group; 100 are kept.
func (s *Service) act(g *group, what, cause string) *sdk.Activity {
	now := s.cfg.Now().UTC()
	a := &sdk.Activity{
		ActivityId: new(record.Hex(s.cfg.Rand, 32)), AutoScalingGroupName: g.Shape.AutoScalingGroupName,
		AutoScalingGroupARN: g.Shape.AutoScalingGroupARN, Description: new(what), Cause: new(cause), StartTime: new(now),
		StatusCode: new(sdk.ScalingActivityStatusCodeInProgress), Progress: new(int64(0)),
	}
	g.Activities = append([]*sdk.Activity{a}, g.Activities...)
	g.Activities = g.Activities[:min(len(g.Activities), 100)]
	s.book.Dirty()
	return a
}

// done ends the activity in progress that is about an instance.
func (s *Service) done(g *group, id string) {
	for _, a := range g.Activities {
		if record.Str(a.Details) == id && record.Str(a.StatusCode) == sdk.ScalingActivityStatusCodeInProgress {
			a.StatusCode, a.Progress, a.EndTime = new(sdk.ScalingActivityStatusCodeSuccessful), new(int64(100)), new(s.cfg.Now().UTC())
		}
	}
	s.book.Dirty()
}

// observe takes over what EC2 says about the group's instances.
func (s *Service) observe(g *group) {
	for _, i := range slices.Clone(g.Shape.Instances) {
		id := record.Str(i.InstanceId)
		f, found := s.cfg.Cloud.Instance(id)
		if !found || f.State == ec2sdk.InstanceStateNameTerminated || f.State == ec2sdk.InstanceStateNameShuttingDown {
			s.lost(g, i)
			if f.State != ec2sdk.InstanceStateNameShuttingDown {
				s.done(g, id)
				g.drop(id)
			}
			continue
		}
		switch state := record.Str(i.LifecycleState); {
		case f.State == ec2sdk.InstanceStateNameRunning && state == sdk.LifecycleStatePending:
			i.LifecycleState = new(sdk.LifecycleStateInService)
			if g.Since == nil {
				g.Since = map[string]time.Time{}
			}
			g.Since[id], g.Failures = s.cfg.Now(), 0
			s.done(g, id)
		case state == sdk.LifecycleStateInService && record.Str(i.HealthStatus) == healthy && s.sick(g, f):
			i.HealthStatus = new(unhealthy)
			s.book.Dirty()
		}
	}
}

// lost notes, once, that an instance ended without the group's doing.
func (s *Service) lost(g *group, i *sdk.Instance) {
	id, state := record.Str(i.InstanceId), record.Str(i.LifecycleState)
	if state == sdk.LifecycleStateTerminating {
		return
	}
	if state == sdk.LifecycleStatePending {
		s.backOff(g) // it never ran: the next will hardly do better at once
	}
	a := s.act(g, "Terminating EC2 instance: "+id, "an EC2 health check indicated that the instance was terminated.")
	a.Details = new(id)
	i.LifecycleState, i.HealthStatus = new(sdk.LifecycleStateTerminating), new(unhealthy)
	s.leave(g, id)
}

// sick says whether a health check finds an instance unfit. A machine that died is replaced at once; what load
// balancing says counts after the grace period.
func (s *Service) sick(g *group, f ec2.InstanceFacts) bool {
	if g.suspended("HealthCheck") {
		return false
	}
	if f.Impaired || f.State != ec2sdk.InstanceStateNameRunning {
		return true
	}
	grace := time.Duration(*g.Shape.HealthCheckGracePeriod) * time.Second
	if record.Str(g.Shape.HealthCheckType) != "ELB" || s.cfg.Now().Sub(g.Since[f.ID]) < grace {
		return false
	}
	return slices.ContainsFunc(g.Registered[f.ID], func(arn string) bool { return s.cfg.Balancers.TargetState(arn, f.ID) == "unhealthy" })
}

// replace terminates what is unhealthy; scale then makes up for it.
func (s *Service) replace(ctx context.Context, g *group) {
	if g.suspended("ReplaceUnhealthy") || g.suspended("Terminate") {
		return
	}
	for _, i := range slices.Clone(g.Shape.Instances) {
		if record.Str(i.HealthStatus) == unhealthy && record.Str(i.LifecycleState) == sdk.LifecycleStateInService {
			s.retire(ctx, g, i, "an instance was taken out of service in response to a health check failure.")
		}
	}
}

// counted are the instances that count towards the desired capacity.
func (g *group) counted() []*sdk.Instance {
	return slices.DeleteFunc(slices.Clone(g.Shape.Instances), func(i *sdk.Instance) bool {
		return slices.Contains([]string{sdk.LifecycleStateTerminating, sdk.LifecycleStateStandby}, record.Str(i.LifecycleState))
	})
}

func (s *Service) scale(ctx context.Context, g *group) {
	have := g.counted()
	missing := int(*g.Shape.DesiredCapacity) - len(have)
	switch {
	case missing > 0 && !g.suspended("Launch") && !g.NotBefore.After(s.cfg.Now()):
		for range missing {
			if !s.takeWarm(g) && !s.launch(g) {
				return
			}
		}
	case missing < 0 && !g.suspended("Terminate"):
		for range -missing {
			i := victim(g.counted(), g.Deleting)
			if i == nil {
				return
			}
			s.retire(ctx, g, i, fmt.Sprintf("an instance was terminated to shrink the capacity from %d to %d.", len(have), *g.Shape.DesiredCapacity))
		}
	}
}

// victim chooses what to terminate when a group shrinks: in the zone with the most instances, the one launched from
// the oldest version of the template, the oldest of those. Protected ones are spared unless the group is deleted.
func victim(have []*sdk.Instance, deleting bool) *sdk.Instance {
	zones := map[string]int{}
	for _, i := range have {
		zones[record.Str(i.AvailabilityZone)]++
	}
	open := slices.DeleteFunc(have, func(i *sdk.Instance) bool { return *i.ProtectedFromScaleIn && !deleting })
	if len(open) == 0 {
		return nil
	}
	return slices.MinFunc(open, func(a, b *sdk.Instance) int {
		return cmp.Or(
			cmp.Compare(zones[record.Str(b.AvailabilityZone)], zones[record.Str(a.AvailabilityZone)]),
			cmp.Compare(templateVersion(a), templateVersion(b)),
		)
	})
}

func templateVersion(i *sdk.Instance) int {
	n := 0
	if i.LaunchTemplate != nil {
		_, _ = fmt.Sscan(record.Str(i.LaunchTemplate.Version), &n)
	}
	return n
}

// subnet chooses where the next instance goes: the zone with the fewest, then the order of the subnets.
func (s *Service) subnet(g *group) (ec2.Place, error) {
	places, err := s.cfg.Cloud.Places(subnets(g.Shape.VPCZoneIdentifier)...)
	if err != nil {
		return ec2.Place{}, err
	}
	zones := map[string]int{}
	for _, i := range g.counted() {
		zones[record.Str(i.AvailabilityZone)]++
	}
	return slices.MinFunc(places, func(a, b ec2.Place) int { return cmp.Compare(zones[a.Zone], zones[b.Zone]) }), nil
}

// launch starts one instance; false if that failed, after which the group waits longer each time.
func (s *Service) launch(g *group) bool {
	a := s.act(g, "Launching a new EC2 instance", fmt.Sprintf("an instance was started in response to a difference between desired and actual capacity (%d).", *g.Shape.DesiredCapacity))
	i, err := s.tryLaunch(g)
	if err != nil {
		s.backOff(g)
		a.StatusCode, a.StatusMessage, a.EndTime = new(sdk.ScalingActivityStatusCodeFailed), new(err.Error()), new(s.cfg.Now().UTC())
		a.Progress, a.Description = new(int64(100)), new("Launching a new EC2 instance.  Status Reason: "+err.Error())
		s.cfg.Log.Warn("a group could not launch an instance", slog.String("group", record.Str(g.Shape.AutoScalingGroupName)), slog.Any("error", err))
		return false
	}
	a.Description, a.Details = new("Launching a new EC2 instance: "+record.Str(i.InstanceId)), i.InstanceId
	g.Shape.Instances = append(g.Shape.Instances, i)
	s.aim(i, sdk.LifecycleStateInService)
	s.book.Dirty()
	return true
}

// backOff lets a group wait before its next launch, longer each time in a row.
func (s *Service) backOff(g *group) {
	g.Failures++
	g.NotBefore = s.cfg.Now().Add(min(time.Second<<min(g.Failures, 6), time.Minute))
}

// tryLaunch starts an instance of the first of the group's choices that there is room for.
func (s *Service) tryLaunch(g *group) (*sdk.Instance, error) {
	place, err := s.subnet(g)
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, c := range g.choices() {
		i, err := s.start(g, place, c)
		if err == nil {
			return i, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

// aim tells an instance, by its metadata service, in which state it is to be.
func (s *Service) aim(i *sdk.Instance, state string) {
	if err := s.cfg.Cloud.Aim(record.Str(i.InstanceId), state); err != nil {
		s.cfg.Log.Warn("an instance could not be told its state", slog.String("instance", record.Str(i.InstanceId)), slog.Any("error", err))
	}
}

// start launches one instance as a choice says.
func (s *Service) start(g *group, place ec2.Place, c choice) (*sdk.Instance, error) {
	f, err := s.cfg.Cloud.Template(record.Str(c.template.LaunchTemplateId), "", record.Str(c.template.Version))
	if err != nil {
		return nil, err
	}
	in := &ec2sdk.RunInstancesInput{
		MinCount: new(int64(1)), MaxCount: new(int64(1)), SubnetId: new(place.Subnet), ClientToken: new(record.Hex(s.cfg.Rand, 32)),
		LaunchTemplate: &ec2sdk.LaunchTemplateSpecification{LaunchTemplateId: new(f.ID), Version: new(version(f.Version))}, InstanceMarketOptions: c.market,
	}
	kind := f.InstanceType
	if c.kind != "" {
		kind, in.InstanceType = c.kind, new(c.kind)
	}
	out, err := s.cfg.Cloud.LaunchFor(in, g.launchTags(f))
	if err != nil {
		return nil, err
	}
	if c.market != nil {
		if g.Spot == nil {
			g.Spot = map[string]bool{}
		}
		g.Spot[record.Str(out.Instances[0].InstanceId)] = true
	}
	return &sdk.Instance{
		InstanceId: out.Instances[0].InstanceId, AvailabilityZone: new(place.Zone), InstanceType: new(kind), HealthStatus: new(healthy),
		LifecycleState: new(sdk.LifecycleStatePending), ProtectedFromScaleIn: new(*g.Shape.NewInstancesProtectedFromScaleIn),
		LaunchTemplate: &sdk.LaunchTemplateSpecification{
			LaunchTemplateId: new(f.ID), LaunchTemplateName: new(f.Name), Version: new(version(f.Version)),
		},
	}, nil
}

// launchTags are the tags of a group's instances from the first moment on.
func (g *group) launchTags(f ec2.TemplateFacts) map[string]string {
	tags := map[string]string{
		"aws:autoscaling:groupName": record.Str(g.Shape.AutoScalingGroupName), "aws:ec2launchtemplate:id": f.ID,
		"aws:ec2launchtemplate:version": version(f.Version),
	}
	for k, t := range g.Tags {
		if t.Propagate {
			tags[k] = t.Value
		}
	}
	return tags
}

// enroll brings the target groups into step with the instances in service.
func (s *Service) enroll(g *group) {
	wanted := record.Strs(g.Shape.TargetGroupARNs)
	for _, i := range g.Shape.Instances {
		id := record.Str(i.InstanceId)
		if record.Str(i.LifecycleState) != sdk.LifecycleStateInService {
			continue
		}
		for _, arn := range slices.Clone(g.Registered[id]) {
			if !slices.Contains(wanted, arn) {
				s.leaveOne(g, id, arn)
			}
		}
		for _, arn := range wanted {
			if g.suspended("AddToLoadBalancer") || slices.Contains(g.Registered[id], arn) {
				continue
			}
			if err := s.cfg.Balancers.Register(arn, id); err != nil {
				s.cfg.Log.Warn("an instance could not be registered", slog.String("instance", id), slog.String("targetGroup", arn), slog.Any("error", err))
				continue
			}
			if g.Registered == nil {
				g.Registered = map[string][]string{}
			}
			g.Registered[id] = append(g.Registered[id], arn)
			s.book.Dirty()
		}
	}
}

// leave takes an instance out of all its target groups.
func (s *Service) leave(g *group, id string) {
	for _, arn := range slices.Clone(g.Registered[id]) {
		s.leaveOne(g, id, arn)
	}
	s.book.Dirty()
}

func (s *Service) leaveOne(g *group, id, arn string) {
	if err := s.cfg.Balancers.Deregister(arn, id); err != nil {
		s.cfg.Log.Warn("an instance could not be deregistered", slog.String("instance", id), slog.String("targetGroup", arn), slog.Any("error", err))
	}
	g.Registered[id] = slices.DeleteFunc(g.Registered[id], func(a string) bool { return a == arn })
	maps.DeleteFunc(g.Registered, func(_ string, arns []string) bool { return len(arns) == 0 })
	s.book.Dirty()
}
