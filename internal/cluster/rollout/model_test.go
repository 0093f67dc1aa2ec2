// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

const (
	oldVersion  = "1"
	newVersion  = "2"
	joinTimeout = 10 * time.Minute
	tick        = 10 * time.Second
)

// world is a simulated cluster: Auto Scaling groups that keep their size, machines that boot, drain and break.
type world struct {
	now      time.Time
	groups   []rollout.Group
	machines []rollout.Machine
	bootTime map[string]time.Duration
	drains   map[string]int // ticks that a drain still takes
	broken   map[string]int // ticks for which a machine still does not serve; -1: until it is repaired
	servedAt map[string]time.Time
	// etcdDown are the ticks for which the member of a machine does not answer, and silent those for which its agent
	// reports nothing; -1: until it is repaired.
	etcdDown map[string]int
	silent   map[string]int
	// votes are the machines whose member votes and answers, whatever is reported of it.
	votes   map[string]bool
	alarms  []string
	apiDown int // ticks
	gates   []string
	nextID  int
	// holder is the machine that has the volume of each slot; empty while none has it.
	holder map[string]string
	// handOvers is how many ticks it takes until a machine that was asked hands over its slot; -1: it never does.
	handOvers map[string]int
	// noCapacity are the slots whose group cannot launch a second machine.
	noCapacity map[string]bool
	// changing is the control-plane machine that restarts components for its node document, for some ticks, and
	// isHeld whether the update has the lock that excludes this.
	changing      string
	changingTicks int
	isHeld        bool
	// updateTook are the machines that the update has taken from service and that are not replaced yet.
	updateTook map[string]string // machine id → group
}

func newWorld(t *rapid.T) *world {
	w := &world{
		now:        time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		bootTime:   map[string]time.Duration{},
		drains:     map[string]int{},
		broken:     map[string]int{},
		servedAt:   map[string]time.Time{},
		etcdDown:   map[string]int{},
		silent:     map[string]int{},
		votes:      map[string]bool{},
		updateTook: map[string]string{},
		holder:     map[string]string{},
		handOvers:  map[string]int{},
		noCapacity: map[string]bool{},
	}

	slots := rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "slots")
	for i := range slots {
		g := rollout.Group{Name: "control-plane", Slot: string(rune('a' + i)), Size: 1, Version: newVersion}
		g.Policy.MaxSurge = rapid.IntRange(0, 1).Draw(t, "hand over")
		w.noCapacity[g.Slot] = rapid.IntRange(0, 4).Draw(t, "capacity") == 0
		w.groups = append(w.groups, g)
	}

	for i := range rapid.IntRange(0, 3).Draw(t, "groups") {
		w.groups = append(w.groups, rollout.Group{
			Name:    fmt.Sprintf("workers-%d", i),
			Size:    rapid.IntRange(0, 6).Draw(t, "size"),
			Version: newVersion,
			Policy: rollout.Policy{
				MaxUnavailable: rapid.IntRange(0, 3).Draw(t, "maxUnavailable"),
				MaxSurge:       rapid.IntRange(0, 2).Draw(t, "maxSurge"),
				Canary:         rapid.IntRange(0, 2).Draw(t, "canary"),
				MaxFailures:    rapid.IntRange(0, 2).Draw(t, "maxFailures"),
				PauseBetween:   rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Second}).Draw(t, "pause"),
			},
		})
	}

	for _, g := range w.groups {
		for range g.Size {
			version := rapid.SampledFrom([]string{oldVersion, oldVersion, newVersion}).Draw(t, "version")
			m := w.launch(g, version)
			m.State = rollout.StateRunning
			m.NodeReady = true
			m.ReadySince = w.now
			m.NodeName = m.ID
			w.servedAt[m.ID] = w.now
			if g.Slot != "" {
				m.Member = rollout.MemberHealthy
				w.votes[m.ID] = true
				w.holder[g.Slot] = m.ID
			}
			w.machines = append(w.machines, m)
		}
	}

	return w
}

func (w *world) launch(g rollout.Group, version string) rollout.Machine {
	w.nextID++
	id := fmt.Sprintf("i-%04d", w.nextID)
	w.bootTime[id] = 40 * time.Second

	return rollout.Machine{
		ID:       id,
		Group:    g.Name,
		Slot:     g.Slot,
		Zone:     string(rune('a' + w.nextID%3)),
		State:    rollout.StateStarting,
		Launched: w.now,
		Version:  version,
	}
}

// observe returns what the update sees.
func (w *world) observe() rollout.Observation {
	return rollout.Observation{
		Now:         w.now,
		Groups:      slices.Clone(w.groups),
		Machines:    slices.Clone(w.machines),
		APIReady:    w.apiDown == 0,
		FailedGates: w.gates,
		Changing:    w.changing,
		Alarms:      w.alarms,
	}
}

// advance lets time pass: machines boot, drains proceed, and Auto Scaling replaces what is missing.
func (w *world) advance() {
	w.now = w.now.Add(tick)
	w.apiDown = max(0, w.apiDown-1)
	for i := range w.machines {
		m := &w.machines[i]
		serves := w.now.Sub(m.Launched) >= w.bootTime[m.ID] && w.broken[m.ID] == 0
		for _, faults := range []map[string]int{w.broken, w.etcdDown, w.silent} {
			if faults[m.ID] > 0 {
				faults[m.ID]--
			}
		}

		if m.State == rollout.StateStarting && serves {
			m.State = rollout.StateRunning
		}

		if m.State == rollout.StateRunning {
			if serves && !m.NodeReady {
				m.ReadySince = w.now
			}

			m.NodeReady = serves
			w.advanceSlot(m, serves)
			w.noteService(m)
		}

		if left, ok := w.drains[m.ID]; ok {
			w.drains[m.ID] = left - 1
			m.Drained = left <= 1
		}
	}

	for _, m := range w.machines {
		if m.State == rollout.StateTerminating && w.holder[m.Slot] == m.ID {
			w.holder[m.Slot] = ""
		}
	}

	w.machines = slices.DeleteFunc(w.machines, func(m rollout.Machine) bool { return m.State == rollout.StateTerminating })
	for i := range w.groups {
		g := &w.groups[i]
		g.NoCapacity = ""
		isFull := w.noCapacity[g.Slot] && slices.ContainsFunc(w.machines, func(m rollout.Machine) bool {
			return m.Group == g.Name && m.Slot == g.Slot && m.Detached
		})
		if g.Slot != "" && isFull && w.count(*g) == 0 {
			g.NoCapacity = "InsufficientInstanceCapacity"
			continue
		}

		for w.count(*g) < g.Size {
			w.machines = append(w.machines, w.launch(*g, g.Version))
		}
	}
}

// noteService registers the node of a machine that is Ready for the first time, and notes since when one does not serve.
func (w *world) noteService(m *rollout.Machine) {
	switch {
	case m.NodeReady && (m.Slot == "" || m.Member == rollout.MemberHealthy):
		m.NodeName = m.ID
		m.DownSince = time.Time{}
		w.servedAt[m.ID] = w.now
	case m.NodeName != "" && m.DownSince.IsZero():
		m.DownSince = w.now
	}
}

// advanceSlot lets a control-plane machine take a free volume, prepare while another machine has it, or hand it over.
func (w *world) advanceSlot(m *rollout.Machine, serves bool) {
	if m.Slot == "" {
		return
	}

	if left, asked := w.handOvers[m.ID]; asked && left >= 0 && w.holder[m.Slot] == m.ID {
		w.handOvers[m.ID] = left - 1
		if left == 0 && slices.ContainsFunc(w.machines, func(x rollout.Machine) bool {
			return x.ID == m.HandOverTo && x.State != rollout.StateTerminating
		}) {
			w.holder[m.Slot] = m.HandOverTo
			delete(w.handOvers, m.ID)
		}
	}

	if serves && w.holder[m.Slot] == "" {
		w.holder[m.Slot] = m.ID
	}

	isHolder := w.holder[m.Slot] == m.ID
	m.Prepared = serves && !isHolder
	m.NodeReady = m.NodeReady && isHolder
	w.votes[m.ID] = serves && isHolder && w.etcdDown[m.ID] == 0
	switch {
	case w.silent[m.ID] != 0:
		m.Member = rollout.MemberUnknown
	case w.votes[m.ID]:
		m.Member = rollout.MemberHealthy
	case isHolder:
		m.Member = rollout.MemberLost
	default:
		m.Member = rollout.MemberUnknown
	}
}

// count returns the machines of a group that are not being terminated.
func (w *world) count(g rollout.Group) int {
	n := 0
	for _, m := range w.machines {
		if m.Group == g.Name && m.Slot == g.Slot && m.State != rollout.StateTerminating && !m.Detached {
			n++
		}
	}

	return n
}

// act carries out the actions of a decision, or only some of them, as if the process were killed in between.
func (w *world) act(t *rapid.T, d rollout.Decision) {
	w.isHeld = rollout.NeedsTurn(w.observe(), d, w.isHeld)
	if w.isHeld && w.changing != "" && slices.ContainsFunc(d.Actions, func(a rollout.Action) bool { return a.Machine.Slot != "" }) {
		t.Fatalf("%+v while machine %s has the update lock", d.Actions, w.changing)
	}

	for _, a := range d.Actions {
		if rapid.IntRange(0, 9).Draw(t, "killed before the action") == 0 {
			return
		}

		w.checkAction(t, a)
		for i := range w.machines {
			m := &w.machines[i]
			if m.ID != a.Machine.ID {
				continue
			}

			switch a.Type {
			case rollout.ActionDrain:
				m.Started = true
				if _, draining := w.drains[m.ID]; !draining {
					w.drains[m.ID] = rapid.IntRange(1, 6).Draw(t, "drain")
				}

			case rollout.ActionMark, rollout.ActionUnmark:
				m.Marked = a.Type == rollout.ActionMark

			case rollout.ActionDetach:
				m.Detached = true
				m.DetachedSince = w.now

			case rollout.ActionHandOver:
				if m.HandOverTo != a.Successor {
					m.HandOverTo = a.Successor
					m.HandOverSince = w.now
					w.handOvers[m.ID] = rapid.IntRange(-1, 4).Draw(t, "hand-over")
				}

			case rollout.ActionTerminate:
				m.State = rollout.StateTerminating
				m.NodeReady = false
				m.Member = rollout.MemberUnknown
				w.votes[m.ID] = false
			}
		}
	}
}

// disturb injects a fault.
func (w *world) disturb(t *rapid.T) {
	switch rapid.IntRange(0, 18).Draw(t, "fault") {
	case 0:
		w.apiDown = rapid.IntRange(1, 5).Draw(t, "API down")
	case 1:
		if len(w.machines) > 0 {
			ticks := rapid.SampledFrom([]int{-1, 1, 6, 15, 70}).Draw(t, "broken for")
			w.broken[rapid.SampledFrom(w.machines).Draw(t, "broken machine").ID] = ticks
		}

	case 2:
		if len(w.machines) > 0 {
			i := rapid.IntRange(0, len(w.machines)-1).Draw(t, "lost machine")
			w.machines[i].State = rollout.StateTerminating
		}

	case 3:
		w.gates = []string{"pod kube-system/coredns is not running"}
	case 4:
		w.gates = nil
	case 6, 7: // an etcd member fails, or an agent hangs
		faults := rapid.SampledFrom([]map[string]int{w.etcdDown, w.silent}).Draw(t, "member fault")
		ticks := rapid.SampledFrom([]int{-1, 3, 20, 70}).Draw(t, "member fault for")
		slot := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "member")
		faults[w.holder[slot]] = ticks
	case 8:
		w.alarms = []string{"NOSPACE"}
	case 9:
		w.alarms = nil
	case 5: // a zone, or what connects all workers with the API
		zone := rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "cut off")
		ticks := rapid.SampledFrom([]int{2, 10, 20, 70}).Draw(t, "cut off for")
		for _, m := range w.machines {
			if m.Zone == zone || zone == "" && m.Slot == "" {
				w.broken[m.ID] = ticks
			}
		}
	}
}

// TestDecideModel runs random histories: machines break, disappear and boot slowly, the API goes away, the
// process is killed between two actions. No action may exceed the limits, and once the faults have stopped, the
// update completes or says why it stopped.
func TestDecideModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		opts := rollout.Options{JoinTimeout: joinTimeout}
		for range rapid.IntRange(0, rapid.SampledFrom([]int{30, 150}).Draw(t, "most ticks")).Draw(t, "disturbed ticks") {
			w.disturb(t)
			d := rollout.Decide(w.observe(), opts)
			w.checkFailure(t, d)
			w.act(t, d)
			w.follow(t)
			w.advance()
		}

		// Faults stop, and Auto Scaling or a person repairs machines that are broken.
		w.broken = map[string]int{}
		w.etcdDown = map[string]int{}
		w.silent = map[string]int{}
		w.gates = nil
		w.alarms = nil
		w.advance()
		for range 1000 {
			d := rollout.Decide(w.observe(), opts)
			if d.IsDone() {
				checkUpdated(t, w)
				return
			}

			if w.checkFailure(t, d); d.Failure != "" {
				return // a machine was away for too long before the faults ended
			}

			w.act(t, d)
			w.follow(t)
			w.advance()
		}

		t.Fatalf("did not end: %+v", rollout.Decide(w.observe(), opts))
	})
}

// checkFailure checks that an update stops only because of a machine that is up to date and has not served for long.
func (w *world) checkFailure(t *rapid.T, d rollout.Decision) {
	if d.Failure == "" {
		return
	}

	for _, m := range w.machines {
		since := m.Launched
		if served := w.servedAt[m.ID]; served.After(since) {
			since = served
		}

		if m.Version == newVersion && w.now.Sub(since) >= joinTimeout {
			return
		}
	}

	t.Fatalf("stopped without a fault: %s", d.Failure)
}

// TestStoppingModel asks an update to stop at a random time: it completes what has begun, begins nothing more, and ends.
func TestStoppingModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		opts := rollout.Options{JoinTimeout: joinTimeout}
		for range rapid.IntRange(0, 40).Draw(t, "ticks before") {
			w.act(t, rollout.Decide(w.observe(), opts))
			w.follow(t)
			w.advance()
		}

		opts.Stopping = true
		for range 100 {
			d := rollout.Decide(w.observe(), opts)
			if d.IsDone() {
				return
			}

			if d.Begins() || d.Failure != "" {
				t.Fatalf("%+v although the update stops", d)
			}

			w.act(t, d)
			w.follow(t)
			w.advance()
		}

		t.Fatalf("did not stop: %+v", rollout.Decide(w.observe(), opts))
	})
}

// checkUpdated checks that every machine has the newest launch template and serves.
func checkUpdated(t *rapid.T, w *world) {
	for _, m := range w.machines {
		if m.State != rollout.StateTerminating && (m.Version != newVersion || !m.NodeReady || m.Detached || m.Marked) {
			t.Fatalf("done, but machine %+v is not up to date", m)
		}
	}
}
