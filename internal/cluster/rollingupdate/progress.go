// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// EventType is what an event reports.
type EventType string

// The types of events.
const (
	EventDrain     EventType = "drain"     // the drain of a node begins
	EventBlocked   EventType = "blocked"   // a drain waits for pods
	EventDetach    EventType = "detach"    // a machine is detached, so that a new one starts first
	EventHandOver  EventType = "hand-over" // a machine is asked to hand over its slot to a prepared one
	EventTerminate EventType = "terminate" // a machine is terminated
	EventJoined    EventType = "joined"    // a new machine serves
	EventWaiting   EventType = "waiting"   // why no further machine is replaced now
	EventStopping  EventType = "stopping"  // the update was asked to stop
	EventFailed    EventType = "failed"    // the update stops because of failures
	EventRollback  EventType = "rollback"  // groups return to their former launch template version
	EventDone      EventType = "done"      // every machine is up to date
)

// Event is one step of an update.
type Event struct {
	// Time of the event.
	Time time.Time `json:"time"`
	// Type of the event.
	Type EventType `json:"type"`
	// Machine is the instance id; empty if the event is about the whole update.
	Machine string `json:"machine,omitempty"`
	// Node is the name of the machine's node.
	Node string `json:"node,omitempty"`
	// Group of the machine.
	Group string `json:"group,omitempty"`
	// Slot of the machine; empty for workers.
	Slot string `json:"slot,omitempty"`
	// Zone of the machine.
	Zone string `json:"zone,omitempty"`
	// MemberMissingSeconds is how long the etcd member was missing while its slot was handed over. Only for the type
	// joined.
	MemberMissingSeconds float64 `json:"memberMissingSeconds,omitempty"`
	// Message describes the event for people, in one line.
	Message string `json:"message"`
	// Replaced counts the machines that this run has terminated.
	Replaced int `json:"replaced"`
	// Total is the number of machines that this run set out to replace.
	Total int `json:"total"`
	// ElapsedSeconds is the time since the update began.
	ElapsedSeconds int `json:"elapsedSeconds"`
	// RemainingSeconds estimates how long the update will still take, without the later steps of an upgrade. Zero before the
	// first machine is replaced, and at the end.
	RemainingSeconds int `json:"remainingSeconds"`
}

// MachineProgress is where one machine is.
type MachineProgress struct {
	rollout.MachineStep
	// Since is when the step began; zero if unknown.
	Since time.Time
	// WaitingFor is what keeps the machine in its step; empty if nothing is known.
	WaitingFor string
}

// Progress is the state of an update.
type Progress struct {
	// At is when the machines were observed.
	At time.Time
	// Machines of the updated groups.
	Machines []MachineProgress
	// Waiting are the reasons why no further machine is replaced now.
	Waiting []string
	// Replaced counts the machines that this run has terminated.
	Replaced int
	// Total is the number of machines that this run set out to replace.
	Total int
	// Elapsed is the time since the update began.
	Elapsed time.Duration
	// Remaining is the estimated time that the update still takes.
	Remaining time.Duration
}

// reporter tells the caller what happens. Its methods may be called concurrently.
type reporter struct {
	now        func() time.Time
	onEvent    func(Event)
	onProgress func(Progress)

	mu sync.Mutex
	// blocked is what each drain waits for, by node.
	blocked map[string]string
	// since is when each machine's present step began.
	since map[string]stepTime
	// waiting is what the last message told to wait for.
	waiting  string
	started  time.Time
	replaced int
	total    int
	measured measuredTimes
	// remaining is the time that the update still takes, as it was estimated last.
	remaining time.Duration
}

// stepTime is a step with the time at which it was first seen.
type stepTime struct {
	step rollout.Step
	at   time.Time
	// joined says that the machine has served before.
	joined bool
}

// measuredTimes are the times of this run's replacements.
type measuredTimes struct {
	drains   int
	drainSum time.Duration
	joins    int
	joinSum  time.Duration
}

// perMachine returns the mean time of one replacement.
func (m measuredTimes) perMachine() time.Duration {
	if m.joins == 0 {
		return rollout.DefaultReplaceTime
	}

	return m.drainSum/time.Duration(max(1, m.drains)) + m.joinSum/time.Duration(m.joins)
}

func newReporter(now func() time.Time, onEvent func(Event), onProgress func(Progress)) *reporter {
	return &reporter{
		now:        now,
		onEvent:    onEvent,
		onProgress: onProgress,
		blocked:    map[string]string{},
		since:      map[string]stepTime{},
		started:    now(),
	}
}

// begin sets when the update begins and how many machines it sets out to replace.
func (r *reporter) begin(at time.Time, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = at
	r.total = total
}

// tell reports an event about a machine; the zero machine stands for the whole update.
func (r *reporter) tell(t EventType, m rollout.Machine, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tellLocked(t, m, message)
}

// tellLocked is tell for callers that hold the lock.
func (r *reporter) tellLocked(t EventType, m rollout.Machine, message string) {
	now := r.now()
	r.onEvent(Event{
		Time:    now,
		Type:    t,
		Machine: m.ID,
		Node:    m.NodeName,
		Group:   m.Group,
		Slot:    m.Slot,
		Zone:    m.Zone,
		Message: message,

		MemberMissingSeconds: missingSeconds(t, m),
		Replaced:             r.replaced,
		Total:                r.total,
		ElapsedSeconds:       int(now.Sub(r.started).Seconds()),
		RemainingSeconds:     int(r.remaining.Seconds()),
	})
}

// missingSeconds returns what the event of a machine that has joined tells about its etcd member.
func missingSeconds(t EventType, m rollout.Machine) float64 {
	if t != EventJoined {
		return 0
	}

	return math.Round(m.MemberMissing.Seconds()*10) / 10
}

// addReplaced counts a machine that was terminated.
func (r *reporter) addReplaced() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replaced++
	r.total = max(r.total, r.replaced)
}

// counts returns how many machines were replaced, and how many the run set out to replace.
func (r *reporter) counts() (replaced, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.replaced, r.total
}

// setBlocked remembers what a drain waits for; an empty text means nothing.
func (r *reporter) setBlocked(node, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocked[node] = text
}

// addDrain records how long a drain took.
func (r *reporter) addDrain(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measured.drains++
	r.measured.drainSum += took
}

// update reports the state of all machines after a decision, and the machines that have joined since the last one.
func (r *reporter) update(o rollout.Observation, opts rollout.Options, d rollout.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Progress{At: o.Now, Waiting: d.Waiting, Elapsed: o.Now.Sub(r.started)}
	var joined []rollout.Machine
	for _, s := range rollout.Steps(o, opts) {
		since, isNew := r.noteStep(o.Now, s)
		p.Machines = append(p.Machines, MachineProgress{MachineStep: s, Since: since, WaitingFor: r.waitingFor(s)})
		if isNew {
			joined = append(joined, s.Machine)
		}
	}

	r.remaining = rollout.Estimate(o, opts, r.measured.perMachine())
	for _, m := range joined {
		r.tellLocked(EventJoined, m, describeJoined(o.Now, m))
	}

	p.Replaced = r.replaced
	p.Total = r.total
	p.Remaining = r.remaining
	if r.onProgress != nil {
		r.onProgress(p)
	}

	r.tellWaiting(o, d)
}

// waitingFor returns what keeps a machine in its step.
func (r *reporter) waitingFor(s rollout.MachineStep) string {
	switch s.Step {
	case rollout.StepDraining:
		return r.blocked[s.Machine.NodeName]
	case rollout.StepStarting, rollout.StepFailed:
		return s.Machine.BootStage
	case rollout.StepHandingOver:
		return "hands over its slot to " + s.Machine.HandOverTo
	case rollout.StepStandby:
		return "is prepared and waits for its slot"
	case rollout.StepPending, rollout.StepDetached, rollout.StepTerminating, rollout.StepUpdated:
	}

	return ""
}

// noteStep returns since when a machine is in its step, and whether it has joined since the last decision, for
// the first time: a member of etcd may be unhealthy for a moment while another slot is handed over.
func (r *reporter) noteStep(now time.Time, s rollout.MachineStep) (since time.Time, joined bool) {
	was, known := r.since[s.Machine.ID]
	if known && was.step == s.Step {
		return was.at, false
	}

	next := stepTime{step: s.Step, at: now, joined: was.joined}
	isNew := s.Machine.Launched.After(r.started)
	switch {
	case s.Step == rollout.StepStarting && !s.Machine.Launched.IsZero() && !was.joined:
		next.at = s.Machine.Launched
	case s.Step == rollout.StepUpdated && isNew && !was.joined:
		r.measured.joins++
		r.measured.joinSum += now.Sub(s.Machine.Launched)
		next.joined = true
		joined = true
	}

	r.since[s.Machine.ID] = next

	return next.at, joined
}

// describeJoined returns the message about a new machine that serves.
func describeJoined(now time.Time, m rollout.Machine) string {
	text := "machine " + m.ID + " of " + m.Group + " (node " + m.NodeName + ") serves, " +
		now.Sub(m.Launched).Round(time.Second).String() + " after its launch"
	if missing := m.MemberMissing; missing > 0 {
		text += fmt.Sprintf("; its etcd member was missing for %.1f s", missing.Seconds())
	}

	return text
}

// tellWaiting reports why nothing more is replaced, whenever that changes.
func (r *reporter) tellWaiting(o rollout.Observation, d rollout.Decision) {
	text := strings.Join(slices.Compact(slices.Sorted(slices.Values(d.Waiting))), "; ")
	if text == "" || text == r.waiting {
		return
	}

	r.waiting = text
	r.tellLocked(EventWaiting, rollout.Machine{}, formatElapsed(o.Now.Sub(r.started))+" waiting: "+text)
}
