// SPDX-License-Identifier: Apache-2.0

package elbv2

import (
	sdk "github.com/aws/aws-sdk-go/service/elbv2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
)

func toTargetDescriptions(ids []string) []*sdk.TargetDescription {
	var out []*sdk.TargetDescription
	for _, id := range ids {
		out = append(out, &sdk.TargetDescription{Id: new(id)})
	}

	return out
}

// RegisterTargets registers instances as targets of a group. Auto Scaling calls it. A refusal has AWS's error
// code.
func (s *Service) RegisterTargets(group string, ids ...string) error {
	_, err := state.RunWrite(
		s.store,
		s.registerTargets,
		&sdk.RegisterTargetsInput{TargetGroupArn: &group, Targets: toTargetDescriptions(ids)},
	)

	return err
}

// DeregisterTargets starts to drain targets of a group. Auto Scaling calls it.
func (s *Service) DeregisterTargets(group string, ids ...string) error {
	_, err := state.RunWrite(
		s.store,
		s.deregisterTargets,
		&sdk.DeregisterTargetsInput{TargetGroupArn: &group, Targets: toTargetDescriptions(ids)},
	)

	return err
}

// HasTargetGroup reports whether a target group exists and is visible.
func (s *Service) HasTargetGroup(arn string) bool {
	return !s.unseen.Hides(arn) && s.store.WithLock(func() error {
		_, err := s.findTargetGroup(&arn)
		return err
	}) == nil
}

// TargetState returns the health of an instance in a target group, such as healthy; empty if it is not a
// target.
func (s *Service) TargetState(arn, id string) string {
	health := ""
	err := s.store.WithLock(func() error {
		g, err := s.findTargetGroup(&arn)
		if err != nil {
			return err
		}

		for _, t := range g.Targets {
			if t.ID == id && t.Leaving.IsZero() {
				health = sdkshape.String(s.targetHealth(arn, t).State)
			}
		}

		return nil
	})
	if err != nil {
		return ""
	}

	return health
}
