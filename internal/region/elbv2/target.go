// SPDX-License-Identifier: Apache-2.0

package elbv2

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	ec2sdk "github.com/aws/aws-sdk-go/service/ec2"
	sdk "github.com/aws/aws-sdk-go/service/elbv2"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// validateTarget checks that an instance or an IP address can be a target of a group. It returns the
// availability zone of an instance.
func (s *Service) validateTarget(g *targetGroup, id string) (string, error) {
	if sdkshape.String(g.Shape.TargetType) == "ip" {
		if _, err := netip.ParseAddr(id); err != nil {
			return "", newValidationError("The IP address '%s' is not valid", id)
		}

		return "", nil
	}

	instance, ok := s.cfg.Cloud.InstanceInfo(id)
	switch {
	case !ok:
		return "", newErrorf(
			codeInvalidTarget,
			"The following targets are not valid instances: '%s'",
			id,
		)
	case instance.State != ec2sdk.InstanceStateNameRunning:
		return "", newErrorf(
			codeInvalidTarget,
			"The following targets are not in a running state and cannot be registered: '%s'",
			id,
		)
	}

	if instance.VPC != sdkshape.String(g.Shape.VpcId) {
		return "", newErrorf(
			codeInvalidTarget,
			"The following targets are not in the target group VPC '%s': '%s'",
			sdkshape.String(g.Shape.VpcId),
			id,
		)
	}

	return instance.Zone, nil
}

func (s *Service) registerTargets(in *sdk.RegisterTargetsInput) (*sdk.RegisterTargetsOutput, error) {
	g, err := s.findTargetGroup(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}

	if len(in.Targets) == 0 {
		return nil, newValidationError("At least one target must be specified")
	}

	var added []*registeredTarget

	for _, d := range in.Targets {
		zone, err := s.validateTarget(g, sdkshape.String(d.Id))
		if err != nil {
			return nil, err
		}

		added = append(added, &registeredTarget{
			ID:   sdkshape.String(d.Id),
			Port: *intOrDefault(d.Port, *g.Shape.Port),
			Zone: zone,
		})
	}

	for _, t := range added {
		g.Targets[t.registrationKey()] = t
	}

	return &sdk.RegisterTargetsOutput{}, nil
}

func (t *registeredTarget) registrationKey() string { return fmt.Sprintf("%s:%d", t.ID, t.Port) }

// deregisterTargets starts to drain targets. As in AWS, targets that are not registered are ignored.
func (s *Service) deregisterTargets(in *sdk.DeregisterTargetsInput) (*sdk.DeregisterTargetsOutput, error) {
	g, err := s.findTargetGroup(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}

	delay, err := strconv.Atoi(g.Attributes[keyDeregistrationTime])
	if err != nil {
		return nil, fmt.Errorf(
			"read the deregistration delay of %s: %w",
			sdkshape.String(in.TargetGroupArn),
			err,
		)
	}

	for _, d := range in.Targets {
		for key, t := range g.Targets {
			if t.ID != sdkshape.String(d.Id) || d.Port != nil && *d.Port != t.Port || !t.Leaving.IsZero() {
				continue
			}

			t.Leaving = s.cfg.Now().Add(time.Duration(delay) * time.Second)
			if delay == 0 {
				delete(g.Targets, key)
			}
		}
	}

	return &sdk.DeregisterTargetsOutput{}, nil
}

// targetHealth returns the state of a target, with AWS's reason and description.
func (s *Service) targetHealth(arn string, t *registeredTarget) *sdk.TargetHealth {
	health := func(state, reason, text string) *sdk.TargetHealth {
		h := &sdk.TargetHealth{State: new(state)}
		if reason != "" {
			h.Reason = new(reason)
			h.Description = new(text)
		}

		return h
	}

	switch {
	case !t.Leaving.IsZero():
		return health("draining", "Target.DeregistrationInProgress", "Target deregistration is in progress")
	case len(s.listenersForGroup(arn)) == 0:
		return health(
			"unused",
			"Target.NotInUse",
			"Target group is not configured to receive traffic from the load balancer",
		)

	case t.Zone != "" && !s.servesZone(arn, t.Zone):
		return health(
			"unused",
			"Target.NotInUse",
			"Target is in an Availability Zone that is not enabled for the load balancer",
		)
	}

	g := s.st.Groups[arn]
	if sdkshape.String(g.Shape.TargetType) == "instance" {
		if f, ok := s.cfg.Cloud.InstanceInfo(t.ID); !ok || f.State != ec2sdk.InstanceStateNameRunning {
			return health("unused", "Target.InvalidState", "Target is in the stopped or terminated state")
		}
	}

	seen := s.cfg.Cloud.Health()
	if seen == nil {
		return health("healthy", "", "") // the region runs no network, so there are no health checks
	}

	switch seen[arn][t.ID] {
	case "healthy":
		return health("healthy", "", "")
	case "unhealthy":
		return health("unhealthy", "Target.FailedHealthChecks", "Health checks failed")
	}

	return health("initial", "Elb.RegistrationInProgress", "Target registration is in progress")
}

// servesZone reports whether a load balancer that uses a target group has a subnet in a zone.
func (s *Service) servesZone(group, zone string) bool {
	for _, arn := range s.balancersForGroup(group) {
		if slices.ContainsFunc(
			s.st.Balancers[arn].Interfaces,
			func(f ec2.ManagedInterface) bool { return f.Zone == zone },
		) {
			return true
		}
	}

	return false
}

func (s *Service) describeTargetHealth(
	in *sdk.DescribeTargetHealthInput,
) (*sdk.DescribeTargetHealthOutput, error) {
	g, err := s.findTargetGroup(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}

	arn := sdkshape.String(in.TargetGroupArn)
	out := &sdk.DescribeTargetHealthOutput{TargetHealthDescriptions: []*sdk.TargetHealthDescription{}}
	add := func(t *registeredTarget, h *sdk.TargetHealth) {
		port := sdkshape.String(g.Shape.HealthCheckPort)
		if port == "traffic-port" {
			port = strconv.FormatInt(t.Port, 10)
		}

		d := &sdk.TargetDescription{Id: new(t.ID), Port: new(t.Port)}
		out.TargetHealthDescriptions = append(
			out.TargetHealthDescriptions,
			&sdk.TargetHealthDescription{Target: d, HealthCheckPort: new(port), TargetHealth: h},
		)
	}
	if len(in.Targets) == 0 {
		for _, key := range sdkshape.SortedKeys(g.Targets) {
			add(g.Targets[key], s.targetHealth(arn, g.Targets[key]))
		}

		return out, nil
	}

	for _, d := range in.Targets {
		t := &registeredTarget{ID: sdkshape.String(d.Id), Port: *intOrDefault(d.Port, *g.Shape.Port)}
		if known := g.Targets[t.registrationKey()]; known != nil {
			add(known, s.targetHealth(arn, known))
			continue
		}

		add(t, &sdk.TargetHealth{
			State:       new("unused"),
			Reason:      new("Target.NotRegistered"),
			Description: new("Target is not registered to the target group"),
		})
	}

	return out, nil
}
