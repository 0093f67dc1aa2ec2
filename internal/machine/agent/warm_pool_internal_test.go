// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// target returns a lifecycle state, or 404 as for an instance outside Auto Scaling groups.
type target string

func (s target) GetMetadata(context.Context, *imds.GetMetadataInput, ...func(*imds.Options)) (*imds.GetMetadataOutput, error) {
	if s == "" {
		return nil, &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: http.StatusNotFound}}, Err: errors.New("none")}
	}
	return &imds.GetMetadataOutput{Content: io.NopCloser(strings.NewReader(string(s)))}, nil
}

// launchGroup is an Auto Scaling group that waits for the launch hook of a machine, or does not.
type launchGroup struct {
	t         *testing.T
	RepairAPI // other calls are not made
	waits     bool
	err       error
	calls     int
	completed int
	beats     int
	during    func() // called when the hook is completed
}

func (g *launchGroup) CompleteLifecycleAction(_ context.Context, in *autoscaling.CompleteLifecycleActionInput, _ ...func(*autoscaling.Options)) (*autoscaling.CompleteLifecycleActionOutput, error) {
	g.calls++
	if *in.AutoScalingGroupName != "workers.demo" || *in.LifecycleHookName != "slipway-launch" || *in.InstanceId != "i-1" || *in.LifecycleActionResult != "CONTINUE" {
		g.t.Errorf("completed %+v", in)
	}
	if g.err != nil {
		return nil, g.err
	}
	if !g.waits {
		return nil, &smithy.GenericAPIError{Code: "ValidationError", Message: "No active Lifecycle Action found with instance ID i-1"}
	}
	g.waits = false
	g.completed++
	if g.during != nil {
		g.during()
	}
	return &autoscaling.CompleteLifecycleActionOutput{}, nil
}

func (g *launchGroup) RecordLifecycleActionHeartbeat(_ context.Context, in *autoscaling.RecordLifecycleActionHeartbeatInput, _ ...func(*autoscaling.Options)) (*autoscaling.RecordLifecycleActionHeartbeatOutput, error) {
	if *in.LifecycleHookName != "slipway-launch" {
		g.t.Errorf("heartbeat of %s", *in.LifecycleHookName)
	}
	g.beats++
	return &autoscaling.RecordLifecycleActionHeartbeatOutput{}, nil
}

// SendLifecycle is a machine of the control plane that was asked by the machine.
func (g *launchGroup) SendLifecycle(ctx context.Context, action join.LifecycleAction) (bool, error) {
	return actForMachine(ctx, g, join.Machine{ID: "i-1", ScalingGroup: "workers.demo"}, action)
}

// warmDocument is the document of a worker of a group with a warm pool.
func warmDocument() node.Document {
	return node.Document{Role: v1alpha1.RoleWorker, Images: map[string]string{"flannel": "registry.example/flannel:v1"}}
}

// launchMachine is a worker of a group, with a clock.
type launchMachine struct {
	*Agent
	group *launchGroup
	now   time.Time
}

func newLaunchMachine(t *testing.T, state target) *launchMachine {
	t.Helper()
	m := &launchMachine{group: &launchGroup{t: t, waits: true}, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	m.Agent = &Agent{Root: &HostFS{Dir: t.TempDir()}, Metadata: state, Lifecycle: m.group, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return m.now }}
	m.Boot.Cluster = "demo"
	m.Boot.Group = "workers"
	m.instance = Instance{ID: "i-1"}
	m.doc = warmDocument()
	return m
}

// check runs the stage once each second for a time. It reports whether the machine still waits in its pool.
func (m *launchMachine) check(d time.Duration) (waits bool) {
	m.group.t.Helper()
	for end := m.now.Add(d); ; m.now = m.now.Add(time.Second) {
		err := warmPoolOf(m.Agent).check(m.group.t.Context())
		if _, waits = errors.AsType[notReadyError](err); err != nil && !waits {
			m.group.t.Error(err)
		}
		if !m.now.Before(end) {
			return waits
		}
	}
}

// TestWarmMachineDoesNotJoin checks that an instance in a warm pool waits and all others continue.
func TestWarmMachineDoesNotJoin(t *testing.T) {
	for state, waits := range map[target]bool{"": false, "InService": false, "Warmed:Stopped": true, "Warmed:Running": true, "Terminated": false} {
		if got := newLaunchMachine(t, state).check(0); got != waits {
			t.Errorf("%q: waits %t", state, got)
		}
	}
}

// TestLaunchHookIsCompleted checks that a prepared machine lets Auto Scaling continue, also if that waits only later, and
// that a machine for which nothing waits makes few calls.
func TestLaunchHookIsCompleted(t *testing.T) {
	for name, tc := range map[string]struct {
		state     target
		change    func(*launchMachine)
		completed int
		most      int // calls in an hour
	}{
		"goes into a pool":             {"Warmed:Stopped", func(*launchMachine) {}, 1, 1},
		"launched into service":        {"InService", func(*launchMachine) {}, 1, 1},
		"an earlier document, in pool": {"Warmed:Stopped", func(m *launchMachine) { m.doc.Images = nil }, 1, 1},
		"a group without a pool":       {"InService", func(m *launchMachine) { m.doc.Images = nil }, 0, 0},
		"terminates":                   {"Terminated", func(*launchMachine) {}, 0, 0},
		"in service for long":          {"InService", func(m *launchMachine) { m.group.waits = false }, 0, launchCalls},
	} {
		m := newLaunchMachine(t, tc.state)
		tc.change(m)
		m.check(time.Hour)
		if m.group.completed != tc.completed || m.group.calls > tc.most {
			t.Errorf("%s: completed %d times with %d calls, want %d with at most %d", name, m.group.completed, m.group.calls, tc.completed, tc.most)
		}
	}

	for _, state := range []target{"Warmed:Stopped", "InService"} {
		m := newLaunchMachine(t, state)
		m.group.waits = false // metadata is ahead of Auto Scaling
		m.check(30 * time.Second)
		m.group.waits = true
		m.check(30 * time.Second)
		if m.group.completed != 1 {
			t.Errorf("%s: Auto Scaling waits 30 s later: completed %d times", state, m.group.completed)
		}
	}

	m := newLaunchMachine(t, "Warmed:Stopped")
	m.group.err = errors.New("no route")
	m.check(10 * time.Minute)
	m.group.err = nil
	m.check(30 * time.Second)
	if m.group.completed != 1 || m.group.calls > 33 {
		t.Errorf("after errors: completed %d times with %d calls", m.group.completed, m.group.calls)
	}
}

// TestLaunchHookIsCompletedAgain checks that a machine that leaves its pool completes the hook again, and that one that
// returns to it does too.
func TestLaunchHookIsCompletedAgain(t *testing.T) {
	m := newLaunchMachine(t, "")
	for i, state := range []target{"Warmed:Running", "InService", "Warmed:Running", "InService"} {
		m.Metadata = state
		m.group.waits = true
		m.check(time.Minute)
		if m.group.completed != i+1 {
			t.Fatalf("%d: %s: completed %d times", i, state, m.group.completed)
		}
	}
}

// TestWatchCompletesTheLaunch checks that a running machine completes the hook for which Auto Scaling did not wait yet.
func TestWatchCompletesTheLaunch(t *testing.T) {
	m := newEndingMachine(t)
	w := m.start()
	group := &launchGroup{t: t}
	w.agent.Lifecycle = group
	w.agent.doc = warmDocument()
	for range 60 {
		if _, err := w.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		group.waits = m.now.Sub(newEndingMachine(t).now) > 30*time.Second && group.completed == 0
		m.now = m.now.Add(time.Second)
	}
	if group.completed != 1 {
		t.Errorf("completed %d times with %d calls", group.completed, group.calls)
	}
}

// commandLog records the programs that a machine runs.
type commandLog struct {
	*followBench
	commands []string
}

func (l *commandLog) Run(ctx context.Context, name string, args ...string) (string, error) {
	l.commands = append(l.commands, strings.Join(append([]string{name}, args...), " "))
	if out, err := l.followBench.Run(ctx, name, args...); name != "systemctl" || args[0] != "is-active" {
		return out, err
	}
	return "inactive\n", errors.New("exit status 3")
}

// TestWarmMachineIsPrepared checks that a machine of a pool has the images of its document before it tells Auto Scaling to
// continue, and starts no kubelet; and that a machine that goes into service at once leaves the images to the kubelet.
func TestWarmMachineIsPrepared(t *testing.T) {
	template := testAgent(t)
	for _, state := range []target{"Warmed:Stopped", "InService"} {
		b := newFollowBenchLike(t, template)
		b.boot.Role = "Worker"
		a, _ := newWorkerBenchOf(b).start()
		log := &commandLog{followBench: b}
		a.Run = log
		a.Metadata = state
		a.doc.Files = nil
		group := &launchGroup{t: t}
		a.Lifecycle = group
		a.Wait = func(ctx context.Context, d time.Duration) error {
			if d == launchBeatInterval {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		if err := warmPoolOf(a).prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		var want []string
		if state != "InService" {
			for _, name := range slices.Sorted(maps.Keys(a.doc.Images)) {
				want = append(want, a.doc.Images[name])
			}
		}
		var pulled []string
		for _, c := range log.commands {
			if strings.HasPrefix(c, "ctr ") {
				pulled = append(pulled, c[strings.LastIndex(c, " ")+1:])
			}
		}
		if diff := cmp.Diff(want, pulled); diff != "" || state != "InService" && len(want) == 0 {
			t.Errorf("%s: images (-want +got)\n%s", state, diff)
		}
		if got := slices.Contains(log.commands, "systemctl start --no-block containerd"); got != (state != "InService") {
			t.Errorf("%s: containerd started: %t", state, got)
		}
		if slices.Contains(log.commands, "systemctl start --no-block kubelet") || group.calls > 0 {
			t.Errorf("%s: %d calls to Auto Scaling, commands\n%s", state, group.calls, strings.Join(log.commands, "\n"))
		}

		b.noImage = a.doc.Images["pause"]
		if err := warmPoolOf(a).prepare(t.Context()); (err != nil) != (state != "InService") {
			t.Errorf("%s: without an image: %v", state, err)
		}
	}
}

// TestPreparationSendsHeartbeats checks that Auto Scaling hears of a machine that prepares itself: at once, and then regularly.
func TestPreparationSendsHeartbeats(t *testing.T) {
	m := newLaunchMachine(t, "Warmed:Stopped")
	beats := 0
	m.Wait = func(context.Context, time.Duration) error {
		if beats++; beats > 2 {
			return context.Canceled
		}
		return nil
	}
	warmPoolOf(m.Agent).beatUntilPrepared(t.Context())
	if m.group.beats != 3 {
		t.Errorf("%d heartbeats", m.group.beats)
	}
}
