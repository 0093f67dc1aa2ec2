// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"
	ec2sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// checkTemplateSpec refuses a request that names a launch template both by its id and by its name.
func checkTemplateSpec(t *sdk.LaunchTemplateSpecification) error {
	if t != nil && sdkshape.String(t.LaunchTemplateId) != "" && sdkshape.String(t.LaunchTemplateName) != "" {
		return validationError("Valid requests must contain either launchTemplateId or LaunchTemplateName")
	}

	return nil
}

// resolveLaunchTemplate checks that a launch template exists and sets both its id and its name.
func (s *Service) resolveLaunchTemplate(t *sdk.LaunchTemplateSpecification) error {
	name := sdkshape.String(t.LaunchTemplateName)
	if sdkshape.String(t.LaunchTemplateId) != "" {
		name = "" // a template that was resolved before has both
	}

	f, err := s.cfg.EC2.LaunchTemplateInfo(sdkshape.String(t.LaunchTemplateId), name, sdkshape.String(t.Version))
	if err != nil {
		text := err.Error()
		if refusal, ok := errors.AsType[*wire.Error](err); ok {
			text = refusal.Message // Auto Scaling leaves out EC2's code
		}

		return validationError("You must use a valid fully-formed launch template. %s", text)
	}

	t.LaunchTemplateId = new(f.ID)
	t.LaunchTemplateName = new(f.Name)

	return nil
}

// resolveLaunchSource checks what a group launches: either a launch template or a mixed instances policy with
// one.
func (s *Service) resolveLaunchSource(g *sdk.Group) error {
	switch {
	case g.LaunchTemplate != nil && g.MixedInstancesPolicy != nil:
		return validationError("Valid requests must contain either launchTemplate or mixedInstancesPolicy")
	case g.LaunchTemplate != nil:
		return s.resolveLaunchTemplate(g.LaunchTemplate)
	case g.MixedInstancesPolicy == nil ||
		g.MixedInstancesPolicy.LaunchTemplate == nil ||
		g.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification == nil:
		return validationError(
			"Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy parameter.",
		)
	}

	if err := s.resolveMixedPolicy(g.MixedInstancesPolicy); err != nil {
		return err
	}

	return s.resolveLaunchTemplate(g.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification)
}

// formatVersion formats the version of a launch template.
func formatVersion(n int64) string { return strconv.FormatInt(n, 10) }

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

		emitEvent(s, g, a, launchFailed)
		s.cfg.Log.Warn(
			"failed to launch an instance of a group",
			slog.String("group", sdkshape.String(g.Shape.AutoScalingGroupName)),
			slog.Any("error", err),
		)

		return false
	}

	a.Description = new("Launching a new EC2 instance: " + sdkshape.String(i.InstanceId))
	a.Details = i.InstanceId
	i.LifecycleState = s.pendingState(g, i, sdk.LifecycleStatePending)
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

	out, err := s.cfg.EC2.RunInstancesWithTags(in, g.launchTags())
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
func (g *group) launchTags() map[string]string {
	tags := map[string]string{
		"aws:autoscaling:groupName": sdkshape.String(
			g.Shape.AutoScalingGroupName,
		),
	}

	for k, t := range g.Tags {
		if t.Propagate {
			tags[k] = t.Value
		}
	}

	return tags
}
