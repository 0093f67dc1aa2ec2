// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	as "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
)

// putWarmPool gives the group a pool of at least some machines, or of as many as make the group that large.
func (s *stack) putWarmPool(tb testing.TB, atLeast, prepared int32) {
	tb.Helper()
	must[*as.PutWarmPoolOutput](tb)(s.as.PutWarmPool(tb.Context(), &as.PutWarmPoolInput{
		AutoScalingGroupName: aws.String("nodes"), MinSize: &atLeast, MaxGroupPreparedCapacity: &prepared,
	}))
}

func (s *stack) describeWarmPool(tb testing.TB) *as.DescribeWarmPoolOutput {
	tb.Helper()

	return must[*as.DescribeWarmPoolOutput](tb)(s.as.DescribeWarmPool(tb.Context(), &as.DescribeWarmPoolInput{AutoScalingGroupName: aws.String("nodes")}))
}

// resize sets the desired capacity of the group.
func (s *stack) resize(tb testing.TB, size int32) {
	tb.Helper()
	must[*as.SetDesiredCapacityOutput](tb)(s.as.SetDesiredCapacity(tb.Context(), &as.SetDesiredCapacityInput{
		AutoScalingGroupName: aws.String("nodes"), DesiredCapacity: &size,
	}))
}

func (s *stack) pool(tb testing.TB) map[types.LifecycleState]int {
	tb.Helper()
	out := s.describeWarmPool(tb)
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
	s.putWarmPool(t, 1, 3)
	s.advanceClock(t)
	s.advanceClock(t)
	if diff := cmp.Diff(map[types.LifecycleState]int{types.LifecycleStateWarmedStopped: 2}, s.pool(t)); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	out := s.describeWarmPool(t)
	first := *out.Instances[0].InstanceId
	if got := s.targetLifecycleState(t, first); got != "Warmed:Stopped" {
		t.Errorf("target state of %s: %q", first, got)
	}
	s.resize(t, 2)
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

// TestWarmPoolWaitsForLaunchHooks checks that an instance is stopped only after its launch hook was completed, that it waits
// again when it leaves the pool, and that an abandoned one is replaced.
func TestWarmPoolWaitsForLaunchHooks(t *testing.T) {
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 0)
	s.putHook(t, hookLaunching, "ABANDON")
	s.putWarmPool(t, 1, 1)
	pooled := func() (id, state string) {
		t.Helper()
		out := s.describeWarmPool(t)
		for _, i := range out.Instances {
			if i.LifecycleState != types.LifecycleStateWarmedTerminating {
				id, state = *i.InstanceId, string(i.LifecycleState)
			}
		}
		return id, state
	}
	s.advanceClock(t)
	s.advanceClock(t)
	first, state := pooled()
	if machine, aim := s.instanceState(t, first), s.targetLifecycleState(t, first); state != "Warmed:Pending:Wait" || machine != "running" || aim != "Warmed:Stopped" {
		t.Fatalf("before the hook is completed: %s, %s, target %s", state, machine, aim)
	}
	s.advance(t, 30*time.Second) // nobody completes it
	s.advance(t, 10*time.Minute)
	second, _ := pooled()
	if machine := s.instanceState(t, first); machine != "terminated" || second == first {
		t.Errorf("the abandoned instance is %s, the pool has %s", machine, second)
	}
	if err := s.complete(t, second, "CONTINUE"); err != nil {
		t.Fatal(err)
	}
	s.advanceClock(t)
	s.advanceClock(t)
	if id, state := pooled(); id != second || state != "Warmed:Stopped" || s.instanceState(t, id) != "stopped" {
		t.Fatalf("after the hook: %s of %s", state, id)
	}
	s.resize(t, 1)
	s.advanceClock(t)
	if state, aim := s.states(t)[second], s.targetLifecycleState(t, second); state != "Pending:Wait" || aim != "InService" {
		t.Fatalf("taken from the pool: %s, target %s", state, aim)
	}
	if err := s.complete(t, second, "CONTINUE"); err != nil {
		t.Fatal(err)
	}
	s.advanceClock(t)
	if state := s.states(t)[second]; state != "InService" {
		t.Errorf("after the hook: %s", state)
	}
}

// TestInstancesReturnToTheWarmPool checks that a group with an instance reuse policy stops the instance that it no longer needs,
// after its termination hook; that it starts the same one later; and that a request to terminate an instance terminates it.
func TestInstancesReturnToTheWarmPool(t *testing.T) {
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 2)
	s.putHook(t, hookTerminating, "CONTINUE")
	must[*as.PutWarmPoolOutput](t)(s.as.PutWarmPool(t.Context(), &as.PutWarmPoolInput{
		AutoScalingGroupName:     aws.String("nodes"),
		MaxGroupPreparedCapacity: aws.Int32(2),
		InstanceReusePolicy:      &types.InstanceReusePolicy{ReuseOnScaleIn: aws.Bool(true)},
	}))
	s.advanceClock(t)
	s.advanceClock(t)
	size := func(n int32) {
		t.Helper()
		s.resize(t, n)
		s.advanceClock(t)
		s.advanceClock(t)
	}
	pooled := func() (id, state string) {
		t.Helper()
		out := s.describeWarmPool(t)
		if len(out.Instances) != 1 {
			t.Fatalf("the pool has %+v", out.Instances)
		}
		return *out.Instances[0].InstanceId, string(out.Instances[0].LifecycleState)
	}

	size(1)
	id, state := pooled()
	if machine, aim := s.instanceState(t, id), s.targetLifecycleState(t, id); state != "Warmed:Pending:Wait" || machine != "running" || aim != "Warmed:Stopped" {
		t.Fatalf("before the hook is completed: %s, %s, target %s", state, machine, aim)
	}
	if g := s.describeGroup(t); len(g.Instances) != 1 || *g.Instances[0].InstanceId == id {
		t.Errorf("the group has %+v", g.Instances)
	}
	s.mu.Lock()
	last := s.sent[len(s.sent)-1]
	s.mu.Unlock()
	if got := fmt.Sprint(last.DetailType, ", ", last.Detail["Origin"], " to ", last.Detail["Destination"]); got != "EC2 Instance-terminate Lifecycle Action, AutoScalingGroup to WarmPool" {
		t.Error(got)
	}
	if err := s.complete(t, id, "CONTINUE"); err != nil {
		t.Fatal(err)
	}
	s.advanceClock(t)
	s.advanceClock(t)
	if again, state := pooled(); again != id || state != "Warmed:Stopped" || s.instanceState(t, id) != "stopped" {
		t.Fatalf("after the hook: %s of %s, %s", state, again, s.instanceState(t, id))
	}

	size(2)
	if state, aim := s.states(t)[id], s.targetLifecycleState(t, id); state != "InService" || aim != "InService" || len(s.pool(t)) != 0 {
		t.Errorf("taken from the pool again: %s, target %s", state, aim)
	}

	must[*as.TerminateInstanceInAutoScalingGroupOutput](t)(s.as.TerminateInstanceInAutoScalingGroup(t.Context(), &as.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: &id, ShouldDecrementDesiredCapacity: aws.Bool(true),
	}))
	if state, aim := s.states(t)[id], s.targetLifecycleState(t, id); state != "Terminating:Wait" || aim != "Terminated" {
		t.Errorf("terminated on request: %s, target %s", state, aim)
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

// TestLifecycleActionsAreEvents checks that an event tells of each instance that begins to wait: with the token that completes
// the action, and with where the instance comes from and goes to.
func TestLifecycleActionsAreEvents(t *testing.T) {
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 0)
	for name, transition := range map[string]string{"prepare": hookLaunching, "drain": hookTerminating} {
		must[*as.PutLifecycleHookOutput](t)(s.as.PutLifecycleHook(t.Context(), &as.PutLifecycleHookInput{
			AutoScalingGroupName: aws.String("nodes"), LifecycleHookName: &name, LifecycleTransition: &transition, NotificationMetadata: aws.String("for " + name),
		}))
	}

	seen := map[string]bool{}
	// waits returns the new actions, and completes them by their tokens.
	waits := func() []string {
		t.Helper()
		s.advanceClock(t)
		s.mu.Lock()
		sent := s.sent
		s.mu.Unlock()
		var out []string
		for _, e := range sent {
			token, _ := e.Detail["LifecycleActionToken"].(string)
			if token == "" || seen[token] {
				continue
			}
			seen[token] = true
			hook, _ := e.Detail["LifecycleHookName"].(string)
			out = append(out, fmt.Sprintf("%s: %s (%s, %s), %s to %s", e.DetailType, hook, e.Detail["LifecycleTransition"], e.Detail["NotificationMetadata"], e.Detail["Origin"], e.Detail["Destination"]))
			must[*as.CompleteLifecycleActionOutput](t)(s.as.CompleteLifecycleAction(t.Context(), &as.CompleteLifecycleActionInput{
				AutoScalingGroupName: aws.String("nodes"), LifecycleHookName: &hook, LifecycleActionToken: &token, LifecycleActionResult: aws.String("CONTINUE"),
			}))
		}
		s.advanceClock(t)
		s.advanceClock(t)
		return out
	}
	const launch = "EC2 Instance-launch Lifecycle Action: prepare (autoscaling:EC2_INSTANCE_LAUNCHING, for prepare), "
	const terminate = "EC2 Instance-terminate Lifecycle Action: drain (autoscaling:EC2_INSTANCE_TERMINATING, for drain), "

	must[*as.PutWarmPoolOutput](t)(s.as.PutWarmPool(t.Context(), &as.PutWarmPoolInput{
		AutoScalingGroupName: aws.String("nodes"), MaxGroupPreparedCapacity: aws.Int32(1),
	}))
	for _, step := range []struct {
		size int32
		want []string
	}{
		{0, []string{launch + "EC2 to WarmPool"}},
		{1, []string{launch + "WarmPool to AutoScalingGroup"}},
		{2, []string{launch + "EC2 to AutoScalingGroup"}},
		{1, []string{terminate + "AutoScalingGroup to EC2"}},
	} {
		s.resize(t, step.size)
		if diff := cmp.Diff(step.want, waits()); diff != "" {
			t.Errorf("size %d (-want +got):\n%s", step.size, diff)
		}
	}
}

// TestWarmInstanceThatDoesNotStart: an instance from the pool that EC2 cannot start, and that is stopped again, is replaced.
func TestWarmInstanceThatDoesNotStart(t *testing.T) {
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 0)
	s.putWarmPool(t, 1, 1)
	s.advanceClock(t)
	s.advanceClock(t)
	out := s.describeWarmPool(t)
	first := *out.Instances[0].InstanceId
	s.putHook(t, hookLaunching, "ABANDON") // it keeps the instance from serving before it is stopped
	s.resize(t, 1)
	s.advanceClock(t)
	if state := s.states(t)[first]; state != "Pending:Wait" {
		t.Fatalf("taken from the pool: %s", state)
	}
	if err := s.cloud.StopInstance(first); err != nil {
		t.Fatal(err)
	}
	s.advanceClock(t)
	s.advanceClock(t)
	if machine := s.instanceState(t, first); machine != "terminated" || len(s.states(t)) != 2 || s.states(t)[first] != "Terminating" {
		t.Errorf("the instance is %s, the group has %v", machine, s.states(t))
	}
}

// TestActivitiesAndPoolsHavePages: a client that asks for small pages of the activities of a group, or of its pool, gets all of them.
func TestActivitiesAndPoolsHavePages(t *testing.T) {
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 0)
	s.putWarmPool(t, 2, 2)
	s.advanceClock(t)
	s.advanceClock(t)
	activities, instances := map[string]bool{}, map[string]bool{}
	pages := as.NewDescribeScalingActivitiesPaginator(s.as, &as.DescribeScalingActivitiesInput{AutoScalingGroupName: aws.String("nodes"), MaxRecords: aws.Int32(1)})
	for pages.HasMorePages() {
		out := must[*as.DescribeScalingActivitiesOutput](t)(pages.NextPage(t.Context()))
		activities[*out.Activities[0].ActivityId] = len(out.Activities) == 1
	}
	pools := as.NewDescribeWarmPoolPaginator(s.as, &as.DescribeWarmPoolInput{AutoScalingGroupName: aws.String("nodes"), MaxRecords: aws.Int32(1)})
	for pools.HasMorePages() {
		out := must[*as.DescribeWarmPoolOutput](t)(pools.NextPage(t.Context()))
		instances[*out.Instances[0].InstanceId] = len(out.Instances) == 1
	}
	if len(activities) != 2 || len(instances) != 2 {
		t.Errorf("the pages have activities %v and instances %v, want two of each", activities, instances)
	}
	_, err := s.as.DescribeScalingActivities(t.Context(), &as.DescribeScalingActivitiesInput{NextToken: aws.String("x")})
	if code(err) != "InvalidNextToken" {
		t.Errorf("another token: %v", err)
	}
}
