// SPDX-License-Identifier: Apache-2.0

package elbv2

import (
	sdk "github.com/aws/aws-sdk-go/service/elbv2"

	"github.com/slipway-k8s/slipway/internal/region/record"
)

func descriptions(ids []string) []*sdk.TargetDescription {
	var out []*sdk.TargetDescription
	for _, id := range ids {
		out = append(out, &sdk.TargetDescription{Id: new(id)})
	}
	return out
}

// Register makes instances targets of a group. It is meant for Auto Scaling, as are the following.
func (s *Service) Register(group string, ids ...string) error {
	_, err := record.Order(s.book, s.registerTargets, &sdk.RegisterTargetsInput{TargetGroupArn: &group, Targets: descriptions(ids)})
	return err
}

// Deregister lets targets of a group drain.
func (s *Service) Deregister(group string, ids ...string) error {
	_, err := record.Order(s.book, s.deregisterTargets, &sdk.DeregisterTargetsInput{TargetGroupArn: &group, Targets: descriptions(ids)})
	return err
}

// HasGroup says whether a target group exists.
func (s *Service) HasGroup(arn string) bool {
	return s.book.Do(func() error {
		_, err := s.group(&arn)
		return err
	}) == nil
}

// TargetState is an instance's state in a group, such as healthy; empty where it is no target.
func (s *Service) TargetState(arn, id string) string {
	state := ""
	err := s.book.Do(func() error {
		g, err := s.group(&arn)
		if err != nil {
			return err
		}
		for _, t := range g.Targets {
			if t.ID == id && t.Leaving.IsZero() {
				state = record.Str(s.health(arn, t).State)
			}
		}
		return nil
	})
	if err != nil {
		return ""
	}
	return state
}
