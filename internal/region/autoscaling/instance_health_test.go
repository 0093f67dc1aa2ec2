// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	as "github.com/aws/aws-sdk-go-v2/service/autoscaling"
)

// TestReportedInstanceIsReplaced: SetInstanceHealth has no effect in the grace period of the group, unless the caller says
// that it need not be respected. A group without a grace period replaces the instance at once.
func TestReportedInstanceIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		grace    int32
		respect  *bool
		age      time.Duration
		replaced bool
	}{
		"no grace period":                {0, nil, 0, true},
		"in the grace period":            {300, nil, 0, false},
		"in the grace period, respected": {300, aws.Bool(true), 0, false},
		"the grace period is ignored":    {300, aws.Bool(false), 0, true},
		"after the grace period":         {300, nil, 300 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t)
			s.createGroup(t, s.createTestNetwork(t.Context(), t), 1)
			s.advanceClock(t)
			must[*as.UpdateAutoScalingGroupOutput](t)(s.as.UpdateAutoScalingGroup(t.Context(), &as.UpdateAutoScalingGroupInput{
				AutoScalingGroupName: aws.String("nodes"), HealthCheckGracePeriod: &c.grace,
			}))
			id := ids(s.describeGroup(t))[0]
			s.mu.Lock()
			s.now = s.now.Add(c.age)
			s.mu.Unlock()
			must[*as.SetInstanceHealthOutput](t)(s.as.SetInstanceHealth(t.Context(), &as.SetInstanceHealthInput{
				InstanceId: &id, HealthStatus: aws.String("Unhealthy"), ShouldRespectGracePeriod: c.respect,
			}))
			s.advanceClock(t)
			if replaced := !slices.Contains(ids(s.describeGroup(t)), id); replaced != c.replaced {
				t.Errorf("the instance was replaced: %t", replaced)
			}
		})
	}
}

func TestInstanceHealthIsChecked(t *testing.T) {
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 1)
	s.advanceClock(t)
	id := ids(s.describeGroup(t))[0]
	for health, instance := range map[string]string{"unhealthy": id, "": id, "Unhealthy": "i-0123456789abcdef0"} {
		in := &as.SetInstanceHealthInput{InstanceId: &instance, HealthStatus: &health}
		if _, err := s.as.SetInstanceHealth(t.Context(), in); code(err) != "ValidationError" {
			t.Errorf("health %q of %s: %v", health, instance, err)
		}
	}
}
