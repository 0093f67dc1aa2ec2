// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"net/http"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
)

// lifecycleCalls are the calls about a machine for which an Auto Scaling group waits.
type lifecycleCalls struct {
	*lab
	api *autoscaling.Client
}

// end completes a lifecycle action with a result: CONTINUE or ABANDON.
func (c lifecycleCalls) end(group, hook, instance, result string) error {
	_, err := c.api.CompleteLifecycleAction(c.Context(), &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName:  &group,
		LifecycleHookName:     &hook,
		LifecycleActionResult: &result,
		InstanceId:            &instance,
	})

	return err
}

// prolong makes a group wait longer.
func (c lifecycleCalls) prolong(group, hook, instance string) error {
	_, err := c.api.RecordLifecycleActionHeartbeat(c.Context(), &autoscaling.RecordLifecycleActionHeartbeatInput{
		AutoScalingGroupName: &group,
		LifecycleHookName:    &hook,
		InstanceId:           &instance,
	})

	return err
}

// drainOf has Auto Scaling end a machine of a group, and returns it while the group waits for its drain.
func (l *lab) drainOf(root *autoscaling.Client, group string) string {
	l.Helper()
	id := l.awaitInstance(root, group)
	_, err := root.TerminateInstanceInAutoScalingGroup(l.Context(), &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: &id, ShouldDecrementDesiredCapacity: sdk.Bool(false),
	})
	l.check(err)

	return id
}

// TestWorkersEndNoDrainOfOthers: root on a worker ends the drain of another worker, so that its pods are killed, keeps it
// waiting for two days, or abandons its launch: with the machine's role. Seen to succeed while the role of workers had the
// right for all groups that share it.
func TestWorkersEndNoDrainOfOthers(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	root := autoscaling.NewFromConfig(l.config(caller{}))
	victim := l.drainOf(root, "workers.demo")
	attacker := lifecycleCalls{l, autoscaling.NewFromConfig(l.config(l.assumed(workerRole)))}

	l.denied("prolong the drain of another worker", attacker.prolong("workers.demo", "slipway-drain", victim))
	l.denied("abandon the launch of another worker", attacker.end("workers.demo", "slipway-launch", victim, "ABANDON"))
	l.denied("end the drain of another worker", attacker.end("workers.demo", "slipway-drain", victim, "CONTINUE"))
	l.denied("end a launch of the control plane", attacker.end("control-plane-a.demo", "slipway-launch", victim, "ABANDON"))

	if err := (lifecycleCalls{l, root}).end("workers.demo", "slipway-drain", victim, "CONTINUE"); err != nil {
		t.Errorf("the group does not wait for the drain any more: %v", err)
	}
}

// TestControlPlaneEndsOnlyDrainsOfItsWorkers: the role of the control plane, which speaks for the workers, reaches groups
// of workers of its own cluster alone. Never open: the right of the control plane and this test were made together.
func TestControlPlaneEndsOnlyDrainsOfItsWorkers(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	root := autoscaling.NewFromConfig(l.config(caller{}))
	victim := l.drainOf(root, "workers.demo")
	attacker := lifecycleCalls{l, autoscaling.NewFromConfig(l.config(l.assumed("demo.control-plane-a.us-east-1")))}

	l.check(attacker.prolong("workers.demo", "slipway-drain", victim))
	l.denied("end a launch of the control plane", attacker.end("control-plane-b.demo", "slipway-launch", victim, "ABANDON"))
	l.denied("prolong a launch of the control plane", attacker.prolong("control-plane-b.demo", "slipway-launch", victim))

	for key, value := range map[string]string{"slipway.dev/id": "a1b2c3d4e5f6g7h8", "slipway.dev/role": "database"} {
		tagged := func(value string) {
			_, err := root.CreateOrUpdateTags(t.Context(), &autoscaling.CreateOrUpdateTagsInput{Tags: []types.Tag{{
				ResourceId: sdk.String("workers.demo"), ResourceType: sdk.String("auto-scaling-group"), Key: &key, Value: &value,
				PropagateAtLaunch: sdk.Bool(true),
			}}})
			l.check(err)
		}
		own := l.tagOfGroup(root, "workers.demo", key)
		tagged(value)
		l.denied("end a drain of a group with "+key+"="+value, attacker.end("workers.demo", "slipway-drain", victim, "CONTINUE"))
		l.denied("prolong a drain of a group with "+key+"="+value, attacker.prolong("workers.demo", "slipway-drain", victim))
		tagged(own)
	}

	l.check(attacker.end("workers.demo", "slipway-drain", victim, "CONTINUE"))
}

// tagOfGroup returns the value of a tag of an Auto Scaling group.
func (l *lab) tagOfGroup(root *autoscaling.Client, group, key string) string {
	l.Helper()
	found, err := root.DescribeAutoScalingGroups(l.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{group},
	})
	l.check(err)
	for _, g := range found.AutoScalingGroups {
		for _, tag := range g.Tags {
			if *tag.Key == key {
				return *tag.Value
			}
		}
	}

	l.Fatalf("group %s has no tag %s", group, key)

	return ""
}

// TestWorkersAskForThemselvesOnly: a worker has the control plane end its own wait. Neither can it choose the machine, the
// group or the result, nor use a proof of something else, nor speak for a machine that has ended. Never open: the requests of workers
// and this test were made together.
func TestWorkersAskForThemselvesOnly(t *testing.T) {
	j := newJoinLab(t)
	worker := j.assume(workerRole)
	ask := func(hook, kind, bound string) (int, string) {
		return j.post("/v1/lifecycle", "10.80.16.4", map[string]string{"hook": hook, "kind": kind, "proof": j.prove(worker, bound)})
	}
	const own = "slipway-lifecycle COMPLETE slipway-drain"
	if code, text := ask("slipway-drain", "COMPLETE", own); code != http.StatusOK {
		t.Fatalf("a worker: %d %s", code, text)
	}

	const want = victim + " of workers.demo: COMPLETE slipway-drain"
	if got := strings.Join(j.actions, ", "); got != want {
		t.Errorf("the control plane acts for %s, want %s", got, want)
	}

	for what, attack := range map[string]struct {
		hook, kind, bound string
		code              int
	}{
		"the proof of a heartbeat":    {"slipway-drain", "COMPLETE", "slipway-lifecycle HEARTBEAT slipway-drain", http.StatusForbidden},
		"the proof of another hook":   {"slipway-launch", "COMPLETE", own, http.StatusForbidden},
		"the proof of a signal":       {"slipway-drain", "COMPLETE", "slipway-signal SUCCESS", http.StatusForbidden},
		"the proof of a certificate":  {"slipway-drain", "COMPLETE", j.newRequest(""), http.StatusForbidden},
		"a hook of another program":   {"backup", "COMPLETE", "slipway-lifecycle COMPLETE backup", http.StatusBadRequest},
		"the abandoning of a launch":  {"slipway-launch", "ABANDON", "slipway-lifecycle ABANDON slipway-launch", http.StatusBadRequest},
		"a hook with a name of a URL": {"slipway-drain?x", "COMPLETE", "slipway-lifecycle COMPLETE slipway-drain?x", http.StatusBadRequest},
	} {
		if code, text := ask(attack.hook, attack.kind, attack.bound); code != attack.code {
			t.Errorf("%s: %d %s, want %d", what, code, text, attack.code)
		}
	}

	named := map[string]string{"hook": "slipway-drain", "kind": "COMPLETE", "instance": "i-0fedcba9876543210", "proof": j.prove(worker, own)}
	if code, text := j.post("/v1/lifecycle", "10.80.16.4", named); code != http.StatusBadRequest {
		t.Errorf("a request that names a machine: %d %s", code, text)
	}

	j.machine.ScalingGroup = "workers.demo-2"
	if code, text := ask("slipway-drain", "COMPLETE", own); code != http.StatusForbidden {
		t.Errorf("a machine of another cluster: %d %s", code, text)
	}

	j.machine.ScalingGroup = "workers.demo"
	j.machine.State = "terminated"
	if code, text := ask("slipway-drain", "COMPLETE", own); code != http.StatusForbidden {
		t.Errorf("a machine that was terminated: %d %s", code, text)
	}

	if len(j.actions) != 1 {
		t.Errorf("the control plane acted %d times: %q", len(j.actions), j.actions)
	}
}
