// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	as "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
)

const (
	hookLaunching   = "autoscaling:EC2_INSTANCE_LAUNCHING"
	hookTerminating = "autoscaling:EC2_INSTANCE_TERMINATING"
)

// putHook adds a hook with a heartbeat timeout of 30 s to the group.
func (s *stack) putHook(tb testing.TB, transition, result string) {
	tb.Helper()
	must[*as.PutLifecycleHookOutput](tb)(s.as.PutLifecycleHook(tb.Context(), &as.PutLifecycleHookInput{
		AutoScalingGroupName: aws.String("nodes"),
		LifecycleHookName:    aws.String("drain"),
		LifecycleTransition:  &transition,
		DefaultResult:        &result,
		HeartbeatTimeout:     aws.Int32(30),
	}))
}

// advance moves the clock by d without reconciling in between, then reconciles until nothing moves.
func (s *stack) advance(tb testing.TB, d time.Duration) {
	tb.Helper()
	s.mu.Lock()
	s.now = s.now.Add(d)
	s.mu.Unlock()
	s.advanceClock(tb)
}

// states returns the lifecycle states of the group's instances by id.
func (s *stack) states(tb testing.TB) map[string]string {
	tb.Helper()
	out := map[string]string{}
	for _, i := range s.describeGroup(tb).Instances {
		out[*i.InstanceId] = string(i.LifecycleState)
	}

	return out
}

// terminate terminates an instance of the group, which keeps its size.
func (s *stack) terminate(tb testing.TB, id string) {
	tb.Helper()
	must[*as.TerminateInstanceInAutoScalingGroupOutput](tb)(s.as.TerminateInstanceInAutoScalingGroup(
		tb.Context(),
		&as.TerminateInstanceInAutoScalingGroupInput{InstanceId: &id, ShouldDecrementDesiredCapacity: aws.Bool(false)},
	))
}

func (s *stack) complete(tb testing.TB, id, result string) error {
	tb.Helper()
	_, err := s.as.CompleteLifecycleAction(tb.Context(), &as.CompleteLifecycleActionInput{
		AutoScalingGroupName: aws.String("nodes"), LifecycleHookName: aws.String("drain"), InstanceId: &id,
		LifecycleActionResult: &result,
	})

	return err
}

// TestTerminatingHook checks that a terminating instance waits, that its replacement does not, and every way in
// which the wait ends.
func TestTerminatingHook(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(t *testing.T, s *stack, id string)
		gone bool
	}{
		"nobody completes it": {func(t *testing.T, s *stack, _ string) {
			t.Helper()
			s.advance(t, 30*time.Second)
		}, true},
		"before the timeout": {func(t *testing.T, s *stack, _ string) {
			t.Helper()
			s.advance(t, 20*time.Second)
		}, false},
		"continue": {func(t *testing.T, s *stack, id string) {
			t.Helper()
			if err := s.complete(t, id, "CONTINUE"); err != nil {
				t.Error(err)
			}
		}, true},
		"abandon": {func(t *testing.T, s *stack, id string) {
			t.Helper()
			if err := s.complete(t, id, "ABANDON"); err != nil {
				t.Error(err)
			}
		}, true},
		"a heartbeat": {func(t *testing.T, s *stack, id string) {
			t.Helper()
			s.advance(t, 20*time.Second)
			must[*as.RecordLifecycleActionHeartbeatOutput](t)(s.as.RecordLifecycleActionHeartbeat(
				t.Context(),
				&as.RecordLifecycleActionHeartbeatInput{
					AutoScalingGroupName: aws.String("nodes"), LifecycleHookName: aws.String("drain"), InstanceId: &id,
				},
			))
			s.advance(t, 20*time.Second)
		}, false},
		"the hook is deleted": {func(t *testing.T, s *stack, _ string) {
			t.Helper()
			must[*as.DeleteLifecycleHookOutput](t)(s.as.DeleteLifecycleHook(t.Context(), &as.DeleteLifecycleHookInput{
				AutoScalingGroupName: aws.String("nodes"), LifecycleHookName: aws.String("drain"),
			}))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t)
			s.createGroup(t, s.createTestNetwork(t.Context(), t), 2)
			s.putHook(t, hookTerminating, "CONTINUE")
			s.advanceClock(t)
			id := ids(s.describeGroup(t))[0]
			if got := s.targetLifecycleState(t, id); got != "InService" {
				t.Errorf("target state before: %q", got)
			}

			s.terminate(t, id)
			s.advanceClock(t)
			if got := s.states(t); got[id] != "Terminating:Wait" || len(got) != 3 {
				t.Errorf("states %v: want %s to wait next to its replacement", got, id)
			}

			if got := s.targetLifecycleState(t, id); got != "Terminated" {
				t.Errorf("target state: %q", got)
			}

			if got := s.instanceState(t, id); got != "running" {
				t.Errorf("the waiting instance is %s", got)
			}

			tc.end(t, s, id)
			s.advanceClock(t)
			if _, there := s.states(t)[id]; there == tc.gone {
				t.Errorf("gone %t, want %t", !there, tc.gone)
			}
		})
	}
}

// instanceState returns the state of an instance in EC2.
func (s *stack) instanceState(tb testing.TB, id string) string {
	tb.Helper()
	f, _ := s.cloud.InstanceInfo(id)

	return f.State
}

// TestGlobalTimeout checks that heartbeats prolong an action to 100 times the heartbeat timeout at most.
func TestGlobalTimeout(t *testing.T) {
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 1)
	s.putHook(t, hookTerminating, "CONTINUE")
	s.advanceClock(t)
	id := ids(s.describeGroup(t))[0]
	s.terminate(t, id)
	beats := 0
	for s.states(t)[id] != "" && beats < 200 {
		s.advance(t, 25*time.Second)
		_, err := s.as.RecordLifecycleActionHeartbeat(t.Context(), &as.RecordLifecycleActionHeartbeatInput{
			AutoScalingGroupName: aws.String("nodes"), LifecycleHookName: aws.String("drain"), InstanceId: &id,
		})
		if err == nil {
			beats++
		}
	}

	if beats < 105 || beats > 120 { // 3000 s in steps of 27 s
		t.Errorf("%d heartbeats prolonged the action", beats)
	}
}

// TestExternalTerminationWaits checks that an instance that was terminated in EC2 is replaced at once, and stays in the
// group until its hook ends.
func TestExternalTerminationWaits(t *testing.T) {
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 1)
	s.putHook(t, hookTerminating, "CONTINUE")
	s.advanceClock(t)
	id := ids(s.describeGroup(t))[0]
	must[*ec2client.TerminateInstancesOutput](t)(s.ec2.TerminateInstances(
		t.Context(),
		&ec2client.TerminateInstancesInput{InstanceIds: []string{id}},
	))
	s.advanceClock(t)
	if got := s.states(t); got[id] != "Terminating:Wait" || len(got) != 2 {
		t.Errorf("states: %v", got)
	}

	s.advance(t, 30*time.Second)
	if got := s.states(t); got[id] != "" || len(got) != 1 {
		t.Errorf("states after the timeout: %v", got)
	}
}

// TestForcedDeletionSkipsHooks checks that a group that is deleted with force waits for no hook.
func TestForcedDeletionSkipsHooks(t *testing.T) {
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 2)
	s.putHook(t, hookTerminating, "CONTINUE")
	s.advanceClock(t)
	s.terminate(t, ids(s.describeGroup(t))[0]) // waits already
	s.advanceClock(t)
	must[*as.DeleteAutoScalingGroupOutput](t)(s.as.DeleteAutoScalingGroup(t.Context(), &as.DeleteAutoScalingGroupInput{
		AutoScalingGroupName: aws.String("nodes"), ForceDelete: aws.Bool(true),
	}))
	s.advanceClock(t)
	out := must[*as.DescribeAutoScalingGroupsOutput](t)(s.as.DescribeAutoScalingGroups(t.Context(), &as.DescribeAutoScalingGroupsInput{}))
	if len(out.AutoScalingGroups) != 0 {
		t.Errorf("the group still has %v", out.AutoScalingGroups[0].Instances)
	}
}

// TestLaunchingHook checks that an instance comes into service after its launch hook continues, and is replaced if it
// is abandoned.
func TestLaunchingHook(t *testing.T) {
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 0)
	s.putHook(t, hookLaunching, "ABANDON")
	s.resize(t, 1)
	s.advanceClock(t)
	first := ids(s.describeGroup(t))[0]
	if got := s.states(t)[first]; got != "Pending:Wait" {
		t.Fatalf("state %q", got)
	}

	s.advance(t, 30*time.Second) // abandoned by default
	s.advance(t, 10*time.Second)
	if got := s.instanceState(t, first); got != "terminated" {
		t.Errorf("the abandoned instance is %q", got)
	}

	second := ids(s.describeGroup(t))[0]
	if err := s.complete(t, second, "CONTINUE"); err != nil {
		t.Fatal(err)
	}

	s.advanceClock(t)
	if got := s.states(t)[second]; got != "InService" {
		t.Errorf("state after CONTINUE: %q", got)
	}
}

// TestHookRequests checks what AWS refuses, and what it returns.
func TestHookRequests(t *testing.T) {
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 1)
	s.advanceClock(t)
	group := aws.String("nodes")
	for name, tc := range map[string]struct {
		in   as.PutLifecycleHookInput
		want string
	}{
		"no such group":      {as.PutLifecycleHookInput{AutoScalingGroupName: aws.String("x"), LifecycleHookName: aws.String("a"), LifecycleTransition: aws.String(hookTerminating)}, "not found"},
		"no transition":      {as.PutLifecycleHookInput{AutoScalingGroupName: group, LifecycleHookName: aws.String("a")}, "LifecycleTransition"},
		"another transition": {as.PutLifecycleHookInput{AutoScalingGroupName: group, LifecycleHookName: aws.String("a"), LifecycleTransition: aws.String("x")}, "LifecycleTransition"},
		"a short heartbeat":  {as.PutLifecycleHookInput{AutoScalingGroupName: group, LifecycleHookName: aws.String("a"), LifecycleTransition: aws.String(hookTerminating), HeartbeatTimeout: aws.Int32(29)}, "HeartbeatTimeout"},
		"a long heartbeat":   {as.PutLifecycleHookInput{AutoScalingGroupName: group, LifecycleHookName: aws.String("a"), LifecycleTransition: aws.String(hookTerminating), HeartbeatTimeout: aws.Int32(7201)}, "HeartbeatTimeout"},
		"another result":     {as.PutLifecycleHookInput{AutoScalingGroupName: group, LifecycleHookName: aws.String("a"), LifecycleTransition: aws.String(hookTerminating), DefaultResult: aws.String("x")}, "DefaultResult"},
		"a bad name":         {as.PutLifecycleHookInput{AutoScalingGroupName: group, LifecycleHookName: aws.String("a b"), LifecycleTransition: aws.String(hookTerminating)}, "lifecycleHookName"},
		"a notification":     {as.PutLifecycleHookInput{AutoScalingGroupName: group, LifecycleHookName: aws.String("a"), LifecycleTransition: aws.String(hookTerminating), NotificationTargetARN: aws.String("arn:aws:sns:eu-west-1:000000000000:x")}, "SNS"},
	} {
		_, err := s.as.PutLifecycleHook(t.Context(), &tc.in)
		if code(err) != "ValidationError" || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	must[*as.PutLifecycleHookOutput](t)(s.as.PutLifecycleHook(t.Context(), &as.PutLifecycleHookInput{
		AutoScalingGroupName: group, LifecycleHookName: aws.String("defaults"), LifecycleTransition: aws.String(hookTerminating),
	}))
	s.putHook(t, hookTerminating, "CONTINUE")
	out := must[*as.DescribeLifecycleHooksOutput](t)(s.as.DescribeLifecycleHooks(t.Context(), &as.DescribeLifecycleHooksInput{AutoScalingGroupName: group}))
	got := map[string][]any{}
	for _, h := range out.LifecycleHooks {
		got[*h.LifecycleHookName] = []any{*h.DefaultResult, *h.HeartbeatTimeout, *h.GlobalTimeout}
	}

	want := map[string][]any{"defaults": {"ABANDON", int32(3600), int32(172800)}, "drain": {"CONTINUE", int32(30), int32(3000)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hooks (-want +got)\n%s", diff)
	}

	err := s.complete(t, ids(s.describeGroup(t))[0], "CONTINUE")
	if code(err) != "ValidationError" || !strings.Contains(err.Error(), "No active Lifecycle Action found with instance ID i-") {
		t.Errorf("complete what nobody waits for: %v", err)
	}

	if err := s.complete(t, "i-1", "SUCCESS"); code(err) != "ValidationError" {
		t.Errorf("another result: %v", err)
	}
}

// TestInitialHooks checks the hooks of CreateAutoScalingGroup, and that they end with the group.
func TestInitialHooks(t *testing.T) {
	s := newStack(t)
	n := s.createTestNetwork(t.Context(), t)
	in := &as.CreateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String("nodes"), MinSize: aws.Int32(0), MaxSize: aws.Int32(1),
		LaunchTemplate:    &types.LaunchTemplateSpecification{LaunchTemplateId: &n.template, Version: aws.String("$Latest")},
		VPCZoneIdentifier: &n.subnets[0],
		LifecycleHookSpecificationList: []types.LifecycleHookSpecification{
			{LifecycleHookName: aws.String("drain"), LifecycleTransition: aws.String(hookTerminating)},
		},
	}
	must[*as.CreateAutoScalingGroupOutput](t)(s.as.CreateAutoScalingGroup(t.Context(), in))
	hooks := &as.DescribeLifecycleHooksInput{AutoScalingGroupName: aws.String("nodes")}
	if out := must[*as.DescribeLifecycleHooksOutput](t)(s.as.DescribeLifecycleHooks(t.Context(), hooks)); len(out.LifecycleHooks) != 1 {
		t.Errorf("hooks: %v", out.LifecycleHooks)
	}

	must[*as.DeleteAutoScalingGroupOutput](t)(s.as.DeleteAutoScalingGroup(t.Context(), &as.DeleteAutoScalingGroupInput{AutoScalingGroupName: aws.String("nodes")}))
	if _, err := s.as.DescribeLifecycleHooks(t.Context(), hooks); code(err) != "ValidationError" {
		t.Errorf("hooks of a deleted group: %v", err)
	}

	in.LifecycleHookSpecificationList[0].LifecycleTransition = aws.String("x")
	if _, err := s.as.CreateAutoScalingGroup(t.Context(), in); code(err) != "ValidationError" {
		t.Errorf("a hook that is not valid: %v", err)
	}
}

// TestSpotNotices checks the notices in the metadata, the termination after an interruption notice, and that a group
// with CapacityRebalance launches the replacement before it terminates the instance at risk.
func TestSpotNotices(t *testing.T) {
	s := newStack(t)
	n := s.createTestNetwork(t.Context(), t)
	spot := types.InstancesDistribution{OnDemandPercentageAboveBaseCapacity: aws.Int32(0)}
	if err := s.createMixedGroup(t, n, 1, spot, "m5.large"); err != nil {
		t.Fatal(err)
	}

	group := func() types.AutoScalingGroup {
		return must[*as.DescribeAutoScalingGroupsOutput](t)(s.as.DescribeAutoScalingGroups(t.Context(), &as.DescribeAutoScalingGroupsInput{})).AutoScalingGroups[0]
	}
	must[*as.UpdateAutoScalingGroupOutput](t)(s.as.UpdateAutoScalingGroup(t.Context(), &as.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String("nodes"), CapacityRebalance: aws.Bool(true),
	}))
	s.advanceClock(t)
	id := ids(group())[0]
	source := s.cloud.Metadata(func(string, string) (ec2.Credentials, error) { return ec2.Credentials{}, nil })
	read := func(path string) string {
		v, found, err := source.GetValue(id, "meta-data/"+path)
		if err != nil || !found {
			return "404"
		}

		return string(v)
	}
	if got := read("spot/instance-action") + read("events/recommendations/rebalance"); got != "404404" {
		t.Errorf("notices before any: %s", got)
	}

	if err := s.cloud.RecommendRebalance(id); err != nil {
		t.Fatal(err)
	}

	if got := read("events/recommendations/rebalance"); !strings.HasPrefix(got, `{"noticeTime":"2026-01-02T03:04:`) {
		t.Errorf("recommendation: %s", got)
	}

	if err := s.svc.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}

	if g := group(); len(g.Instances) != 2 || g.Instances[0].LifecycleState != types.LifecycleStateInService {
		t.Errorf("the replacement does not come first: %+v", g.Instances)
	}

	s.advanceClock(t)
	if got := ids(group()); len(got) != 1 || got[0] == id {
		t.Errorf("after the replacement: %v, at risk was %s", got, id)
	}

	id = ids(group())[0]
	if err := s.cloud.InterruptSpotInstance(id, ec2.SpotNotice); err != nil {
		t.Fatal(err)
	}

	if got := read("spot/instance-action"); !strings.HasPrefix(got, `{"action":"terminate","time":"2026-01-02T03:06:`) {
		t.Errorf("notice: %s", got)
	}

	s.advance(t, 100*time.Second)
	if got := s.instanceState(t, id); got != "running" {
		t.Errorf("before the notice ends the instance is %s", got)
	}

	s.advance(t, 20*time.Second)
	if got := s.instanceState(t, id); got != "terminated" {
		t.Errorf("after the notice the instance is %s", got)
	}
}
