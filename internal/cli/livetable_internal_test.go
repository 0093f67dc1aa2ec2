// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster/rollingupdate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// progressOf returns the state of an update, one minute after its begin.
func progressOf(machines ...rollingupdate.MachineProgress) rollingupdate.Progress {
	return rollingupdate.Progress{
		At:        time.Unix(1060, 0),
		Elapsed:   time.Minute,
		Remaining: 6 * time.Minute,
		Replaced:  1,
		Total:     5,
		Machines:  machines,
	}
}

// machineIn returns a machine in a step that began so long before the state was observed.
func machineIn(id string, step rollout.Step, elapsed time.Duration, waitingFor string) rollingupdate.MachineProgress {
	m := rollingupdate.MachineProgress{WaitingFor: waitingFor, Since: time.Unix(1060, 0).Add(-elapsed)}
	m.Machine = rollout.Machine{ID: id, Group: "workers", Zone: "us-east-1a"}
	m.Step = step

	return m
}

// TestLiveTable: the table shows the machines in progress with their elapsed times, what they wait for, and the time that
// is left. Messages come above it, and its end leaves nothing.
func TestLiveTable(t *testing.T) {
	a, term, _ := liveApp(t, 100, 24)
	s, _ := a.Stderr.(*screen)
	table := liveTable{screen: s}
	events := roller{app: a, format: formatTable}

	slot := machineIn("i-1", rollout.StepHandingOver, 9*time.Second, "hands over its slot to i-9")
	slot.Machine.Group = "control-plane"
	slot.Machine.Slot = "a"
	unknown := machineIn("i-3", rollout.StepStarting, 0, "")
	unknown.Since = time.Time{}
	p := progressOf(
		slot,
		machineIn("i-2", rollout.StepDraining, 75*time.Second, "pod default/web-1 for 1m0s: the budget web allows no eviction"),
		unknown,
		machineIn("i-4", rollout.StepUpdated, time.Minute, ""),
		machineIn("i-5", rollout.StepPending, time.Minute, ""),
		machineIn("i-6", rollout.StepPending, time.Minute, ""),
	)
	p.Waiting = []string{"workers: 1 of 2 machines serve, and at most 1 may be missing"}
	table.show(p)
	events.printEvent(rollingupdate.Event{Message: "drain node n-2"})
	want := `drain node n-2
replaced 1 of 5 machines in 1m0s, about 6m0s left
  i-1   control-plane (slot a)   us-east-1a   handing over   9s      hands over its slot to i-9
  i-2   workers                  us-east-1a   draining       1m15s   pod default/web-1 for 1m0s: t…
  i-3   workers                  us-east-1a   starting       -
  2 more are pending
  waiting: workers: 1 of 2 machines serve, and at most 1 may be missing
`
	if diff := cmp.Diff(want, term.String()); diff != "" {
		t.Error(diff)
	}

	table.clear()
	if diff := cmp.Diff("drain node n-2\n", term.String()); diff != "" {
		t.Error(diff)
	}
}

// TestLiveTableOfManyMachines: the table does not grow with the number of machines.
func TestLiveTableOfManyMachines(t *testing.T) {
	var machines []rollingupdate.MachineProgress
	for n := range 100 {
		machines = append(machines, machineIn(fmt.Sprintf("i-%d", n), rollout.StepDraining, time.Second, ""))
	}
	p := progressOf(append(machines, machineIn("i-last", rollout.StepPending, 0, ""))...)
	for n := range 10 {
		p.Waiting = append(p.Waiting, fmt.Sprintf("reason %d", n))
	}
	lines := liveLines(p)
	got := strings.Join(lines, "\n")
	if len(lines) != 1+maxLiveMachines+2+maxLiveReasons || !strings.Contains(got, "  85 more are in progress\n  1 more are pending\n") {
		t.Errorf("%d lines:\n%s", len(lines), got)
	}
}

// TestLiveTableOnTerminalsOnly: a file, a dumb terminal, --quiet and JSON get no table.
func TestLiveTableOnTerminalsOnly(t *testing.T) {
	a, _, _ := liveApp(t, 80, 24) // its screen is no file, so it counts as no terminal
	for _, r := range []roller{{app: a, format: formatTable}, {app: a, format: formatJSON}} {
		if table := r.liveTable(); table.screen != nil {
			t.Errorf("format %s: a table on what is no terminal", r.format)
		}
	}
	liveTable{}.show(progressOf())
	liveTable{}.clear()
}

// TestEventsAsJSON: each event is an object on a line of stdout, and no line for people is printed.
func TestEventsAsJSON(t *testing.T) {
	var out, messages bytes.Buffer
	a := &app{Env: Env{Stdout: &out, Stderr: newScreen(&messages), Now: time.Now, Getenv: func(string) string { return "" }}}
	events := roller{app: a, format: formatJSON}
	for n := range 2 {
		events.printEvent(rollingupdate.Event{
			Time:    time.Unix(int64(n), 0).UTC(),
			Type:    rollingupdate.EventJoined,
			Machine: "i-1",
			Message: "machine i-1 serves",

			Replaced:         n,
			Total:            5,
			ElapsedSeconds:   61,
			RemainingSeconds: 240,
		})
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || messages.Len() > 0 {
		t.Fatalf("stdout %q, stderr %q", out.String(), messages.String())
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[1]), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"time": "1970-01-01T00:00:01Z", "type": "joined", "machine": "i-1", "message": "machine i-1 serves",
		"replaced": 1.0, "total": 5.0, "elapsedSeconds": 61.0, "remainingSeconds": 240.0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
