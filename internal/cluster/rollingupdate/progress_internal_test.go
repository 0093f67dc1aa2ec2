// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// TestRemainingTime: before anything was replaced the estimate is the default, then it follows the measured times; each
// step has the time at which it began, and events tell both.
func TestRemainingTime(t *testing.T) {
	begin := time.Unix(1000, 0)
	now := begin
	var last Event
	var progress Progress
	r := newReporter(func() time.Time { return now }, func(e Event) { last = e }, func(p Progress) { progress = p })
	r.begin(begin, 3)

	group := rollout.Group{Name: "workers", Size: 3, Version: "2"}
	o := rollout.Observation{APIReady: true, Groups: []rollout.Group{group}}
	for _, id := range []string{"i-1", "i-2", "i-3"} {
		o.Machines = append(o.Machines, rollout.Machine{
			ID:       id,
			Group:    "workers",
			NodeName: "node-" + id,
			Version:  "1",
			State:    rollout.StateRunning,
			Launched: begin.Add(-time.Hour),

			NodeReady: true,
		})
	}
	observe := func(after time.Duration) {
		now = begin.Add(after)
		o.Now = now
		r.update(o, rollout.Options{JoinTimeout: time.Hour}, rollout.Decision{Waiting: []string{"reason after " + after.String()}})
	}

	o.Machines[0].Started = true
	r.setBlocked("node-i-1", "pod default/web-1 for 5s")
	observe(0)
	observe(5 * time.Second)
	if progress.Remaining != 3*rollout.DefaultReplaceTime || last.RemainingSeconds != 270 || last.ElapsedSeconds != 5 {
		t.Errorf("before anything was replaced: %s left, event %+v", progress.Remaining, last)
	}
	first := progress.Machines[0]
	if first.Step != rollout.StepDraining || !first.Since.Equal(begin) || first.WaitingFor != "pod default/web-1 for 5s" {
		t.Errorf("the first machine: %+v", first)
	}

	// The drain took 10 s. A new machine is launched, and serves after 20 s.
	r.addDrain(10 * time.Second)
	r.addReplaced()
	o.Machines[0] = rollout.Machine{
		ID:        "i-4",
		Group:     "workers",
		NodeName:  "node-i-4",
		Version:   "2",
		State:     rollout.StateRunning,
		Launched:  begin.Add(10 * time.Second),
		BootStage: "join",
	}
	observe(15 * time.Second)
	if m := progress.Machines[0]; m.Step != rollout.StepStarting || m.WaitingFor != "join" || !m.Since.Equal(begin.Add(10*time.Second)) {
		t.Errorf("the new machine: %+v", m)
	}
	o.Machines[0].NodeReady = true
	var joined Event
	r.onEvent = func(e Event) {
		if e.Type == EventJoined {
			joined = e
		}
	}
	observe(30 * time.Second)
	if progress.Remaining != time.Minute {
		t.Errorf("%s left, want 2 machines of 30 s", progress.Remaining)
	}
	if joined.RemainingSeconds != 60 || joined.Replaced != 1 || joined.Total != 3 || !strings.Contains(joined.Message, "serves, 20s after its launch") {
		t.Errorf("the event of the machine that joined: %+v", joined)
	}

	// Its Node is not ready for a moment, as the etcd member of a machine while another slot is handed over.
	joined = Event{}
	o.Machines[0].NodeReady = false
	observe(35 * time.Second)
	o.Machines[0].NodeReady = true
	observe(40 * time.Second)
	if joined != (Event{}) || r.measured.joins != 1 {
		t.Errorf("it joined a second time: %+v, counted %d times", joined, r.measured.joins)
	}
}
