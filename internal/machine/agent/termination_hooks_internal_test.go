// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// waitingGroup is an Auto Scaling group that waits for the termination hook of its machine at times.
type waitingGroup struct {
	waits            bool
	calls, completed int
	err              error
	// deadlines are the times that heartbeats had.
	deadlines []time.Duration
}

func (g *waitingGroup) SendLifecycle(ctx context.Context, action join.LifecycleAction) (bool, error) {
	if action.Kind == join.LifecycleHeartbeat {
		deadline, _ := ctx.Deadline()
		g.deadlines = append(g.deadlines, time.Until(deadline))
		return g.waits, g.err
	}
	if action.Hook != "slipway-drain" {
		return false, nil
	}
	g.calls++
	if g.err != nil || !g.waits {
		return false, g.err
	}
	g.waits = false
	g.completed++
	return true, nil
}

// lookFor lets a watch look once a second.
func (m *endingMachine) lookFor(w *terminationWatch, d time.Duration) {
	for end := m.now.Add(d); m.now.Before(end); m.now = m.now.Add(time.Second) {
		_, _ = w.look(m.t.Context())
	}
}

// TestSecondHookIsCompleted: Auto Scaling can wait for the same machine again, for another target state.
func TestSecondHookIsCompleted(t *testing.T) {
	for _, states := range [][]string{
		{"Warmed:Stopped", "Warmed:Terminated"}, // the pool was deleted before the machine was stopped
		{"Warmed:Stopped", "Terminated"},
		{"Warmed:Stopped", "InService", "Warmed:Stopped", "Terminated"},
	} {
		m := newEndingMachine(t)
		group := &waitingGroup{}
		w := m.start()
		w.agent.doc = warmDocument()
		w.hook.sender = group
		want := 0
		for _, state := range states {
			m.meta[targetStateKey] = state
			if group.waits = state != "InService"; group.waits {
				want++
			}
			m.lookFor(w, 20*time.Second)
			if group.completed != want {
				t.Errorf("%v: in %s: completed %d times, want %d", states, state, group.completed, want)
			}
		}
		if len(m.pods) > 0 {
			t.Errorf("%v: pods %v are left", states, m.pods)
		}
	}
}

// TestHookOfLaterWait: metadata is ahead of Auto Scaling, which waits for the machine only later. The agent does not ask forever.
func TestHookOfLaterWait(t *testing.T) {
	m := newEndingMachine(t)
	group := &waitingGroup{}
	w := m.start()
	w.hook.sender = group
	m.meta[targetStateKey] = "Terminated"
	m.lookFor(w, 30*time.Second)
	group.waits = true
	m.lookFor(w, 30*time.Second)
	if group.completed != 1 {
		t.Errorf("completed %d times with %d calls", group.completed, group.calls)
	}

	for _, control := range []bool{false, true} {
		m = newEndingMachine(t)
		group = &waitingGroup{}
		w = m.start()
		w.hook.sender = group
		if control {
			w.hook.sender = nil
		}
		m.meta[targetStateKey] = "Terminated"
		m.lookFor(w, time.Hour)
		calls := group.calls
		m.lookFor(w, time.Hour)
		if calls > 20 || group.calls != calls || (calls == 0) != control || w.agent.Report.last.State != stateDone {
			t.Errorf("nothing waits, no hook %t: %d calls, then %d, report %+v", control, calls, group.calls, w.agent.Report.last)
		}
	}

	m = newEndingMachine(t)
	group = &waitingGroup{err: errors.New("no route")}
	w = m.start()
	w.hook.sender = group
	m.meta[targetStateKey] = "Terminated"
	m.lookFor(w, 10*time.Minute)
	group.err = nil
	group.waits = true
	m.lookFor(w, 10*time.Second)
	if group.completed != 1 {
		t.Errorf("after errors: completed %d times with %d calls", group.completed, group.calls)
	}
}

// TestHeartbeatHoldsNoDrainUp: a control plane that does not answer leaves most of a look to the evictions.
func TestHeartbeatHoldsNoDrainUp(t *testing.T) {
	m := newEndingMachine(t)
	m.pods["web-2"] = 1 << 30
	group := &waitingGroup{waits: true}
	w := m.start()
	w.hook.sender = group
	m.meta[targetStateKey] = "Terminated"
	m.lookFor(w, time.Minute)
	if len(group.deadlines) < 2 {
		t.Fatalf("%d heartbeats in a minute", len(group.deadlines))
	}
	for _, d := range group.deadlines {
		if d > 5*time.Second {
			t.Errorf("a heartbeat may take %s", d)
		}
	}
}

// TestFailuresOfAHealthyNode: what fails on a machine that does not end is not reported as its end.
func TestFailuresOfAHealthyNode(t *testing.T) {
	m := newEndingMachine(t)
	w := m.start()
	w.agent.doc = warmDocument()
	var log bytes.Buffer
	w.agent.Log = slog.New(slog.NewTextHandler(&log, nil))
	runFor := func(d time.Duration) {
		end := m.now.Add(d)
		w.agent.Wait = func(_ context.Context, d time.Duration) error {
			if m.now = m.now.Add(d); m.now.After(end) {
				return context.Canceled
			}
			return nil
		}
		_ = w.run(t.Context())
	}

	m.down.Store(true) // the Node cannot be made schedulable
	runFor(time.Minute)
	conditions := w.agent.conditions.Conditions()
	if len(conditions) != 1 || conditions[0].Component != report.Task("termination") || !strings.Contains(conditions[0].Cause, "schedulable") {
		t.Errorf("conditions %+v", conditions)
	}
	if last := w.agent.Report.last; last.Stage == "terminate" || strings.Contains(log.String(), "this machine ends") {
		t.Errorf("report %+v, log:\n%s", last, log.String())
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings in\n%s", n, log.String())
	}

	m.down.Store(false)
	runFor(10 * time.Second)
	if got := w.agent.conditions.Conditions(); len(got) > 0 || !w.resumed {
		t.Errorf("conditions %+v, schedulable %t", got, w.resumed)
	}

	group := &waitingGroup{err: errors.New("no route")}
	w.hook.sender = group
	m.meta[targetStateKey] = "Terminated"
	runFor(time.Minute)
	if last := w.agent.Report.last; last.Stage != "terminate" || !strings.Contains(last.Error, "no route") {
		t.Errorf("the end: report %+v", last)
	}
}
