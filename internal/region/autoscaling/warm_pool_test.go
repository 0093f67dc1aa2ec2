// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	as "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
)

func (s *stack) pool(tb testing.TB) map[types.LifecycleState]int {
	tb.Helper()
	out := must[*as.DescribeWarmPoolOutput](tb)(s.as.DescribeWarmPool(tb.Context(), &as.DescribeWarmPoolInput{AutoScalingGroupName: aws.String("nodes")}))
	states := map[types.LifecycleState]int{}
	for _, i := range out.Instances {
		states[i.LifecycleState]++
	}
	return states
}

// targetLifecycleState returns the target lifecycle state in the metadata of an instance.
func (s *stack) targetLifecycleState(tb testing.TB, id string) string {
	tb.Helper()
	source := s.cloud.Metadata(func(string, string) (ec2.Credentials, error) { return ec2.Credentials{}, nil })
	state, _, err := source.GetValue(id, "meta-data/autoscaling/target-lifecycle-state")
	if err != nil {
		tb.Fatal(err)
	}
	return string(state)
}

// TestWarmPool checks that instances boot once, are stopped, and are started when the group grows.
func TestWarmPool(t *testing.T) {
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 1)
	must[*as.PutWarmPoolOutput](t)(s.as.PutWarmPool(t.Context(), &as.PutWarmPoolInput{
		AutoScalingGroupName: aws.String("nodes"), MinSize: aws.Int32(1), MaxGroupPreparedCapacity: aws.Int32(3),
	}))
	s.advanceClock(t)
	s.advanceClock(t)
	if diff := cmp.Diff(map[types.LifecycleState]int{types.LifecycleStateWarmedStopped: 2}, s.pool(t)); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	out := must[*as.DescribeWarmPoolOutput](t)(s.as.DescribeWarmPool(t.Context(), &as.DescribeWarmPoolInput{AutoScalingGroupName: aws.String("nodes")}))
	first := *out.Instances[0].InstanceId
	if got := s.targetLifecycleState(t, first); got != "Warmed:Stopped" {
		t.Errorf("target state of %s: %q", first, got)
	}
	must[*as.SetDesiredCapacityOutput](t)(s.as.SetDesiredCapacity(t.Context(), &as.SetDesiredCapacityInput{AutoScalingGroupName: aws.String("nodes"), DesiredCapacity: aws.Int32(2)}))
	s.advanceClock(t)
	s.advanceClock(t)
	if g := s.describeGroup(t); len(g.Instances) != 2 || *g.WarmPoolSize != 1 || zones(g)["eu-west-1a"]+zones(g)["eu-west-1b"] != 2 {
		t.Errorf("instances of the group: %+v", g.Instances)
	}
	if got := s.targetLifecycleState(t, first); got != "InService" {
		t.Errorf("target state of %s, taken from the pool: %q", first, got)
	}
	_, err := s.as.DeleteAutoScalingGroup(t.Context(), &as.DeleteAutoScalingGroupInput{AutoScalingGroupName: aws.String("nodes")})
	if code(err) != "ResourceInUse" {
		t.Errorf("delete a group with a warm pool: %v", err)
	}
	must[*as.DeleteWarmPoolOutput](t)(s.as.DeleteWarmPool(t.Context(), &as.DeleteWarmPoolInput{AutoScalingGroupName: aws.String("nodes"), ForceDelete: aws.Bool(true)}))
	s.advanceClock(t)
	if g := s.describeGroup(t); len(s.pool(t)) != 0 || g.WarmPoolConfiguration != nil {
		t.Errorf("a deleted warm pool has %v", s.pool(t))
	}
}

func TestWarmPoolIsChecked(t *testing.T) {
	s := newStack(t)
	g := s.createTestNetwork(t.Context(), t)
	if err := s.createMixedGroup(t, g, 1, types.InstancesDistribution{}, "m5.large"); err != nil {
		t.Fatal(err)
	}
	_, err := s.as.PutWarmPool(t.Context(), &as.PutWarmPoolInput{AutoScalingGroupName: aws.String("nodes")})
	if code(err) != "ValidationError" {
		t.Errorf("a warm pool with a mixed instances policy: %v", err)
	}
	_, err = s.as.DeleteWarmPool(t.Context(), &as.DeleteWarmPoolInput{AutoScalingGroupName: aws.String("nodes")})
	if code(err) != "ValidationError" {
		t.Errorf("delete a warm pool that does not exist: %v", err)
	}
}
