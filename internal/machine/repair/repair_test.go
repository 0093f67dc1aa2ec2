// SPDX-License-Identifier: Apache-2.0

package repair_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/repair"
)

var start = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// base is a healthy cluster: three zones with a control-plane machine each, and six workers, two in each zone.
func base() repair.Observation {
	o := repair.Observation{Now: start, Groups: []repair.Group{{
		Name: "workers", Size: 6, Policy: repair.Policy{NotReadyFor: 10 * time.Minute, MaxUnhealthyPercent: 40},
	}}}
	for _, z := range []string{"a", "b", "c"} {
		o.Machines = append(o.Machines, repair.Machine{ID: "cp-" + z, Zone: z, State: repair.Running, Ready: true})
	}

	for n := range 6 {
		o.Machines = append(o.Machines, repair.Machine{
			ID: fmt.Sprintf("w%d", n), Group: "workers", Zone: string(rune('a' + n%3)), State: repair.Running, Ready: true,
		})
	}

	return o
}

func TestDecide(t *testing.T) {
	broken := func(o *repair.Observation, wait time.Duration, ids ...string) {
		for n := range o.Machines {
			for _, id := range ids {
				if o.Machines[n].ID == id {
					o.Machines[n].Ready = false
					o.Machines[n].Since = start.Add(-wait)
				}
			}
		}
	}
	began := func(o *repair.Observation, id string, ago time.Duration) *repair.Machine {
		for n := range o.Machines {
			if o.Machines[n].ID == id {
				o.Machines[n].Began = start.Add(-ago)
				return &o.Machines[n]
			}
		}

		return nil
	}
	for name, tc := range map[string]struct {
		change func(o *repair.Observation)
		want   string
	}{
		"all are Ready": {func(*repair.Observation) {}, ""},
		"not yet":       {func(o *repair.Observation) { broken(o, 9*time.Minute, "w1") }, ""},
		"due":           {func(o *repair.Observation) { broken(o, 10*time.Minute, "w1") }, "begin w1"},
		"two are due, the older first": {func(o *repair.Observation) {
			broken(o, 10*time.Minute, "w1")
			broken(o, 11*time.Minute, "w2")
		}, "begin w2, begin w1"},
		"more than the share":       {func(o *repair.Observation) { broken(o, 10*time.Minute, "w0", "w1", "w2") }, "held w0, held w1, held w2"},
		"the share is at least one": {func(o *repair.Observation) { o.Groups[0].Policy.MaxUnhealthyPercent = 1; broken(o, time.Hour, "w1") }, "begin w1"},
		"a replacement has not come up": {func(o *repair.Observation) {
			o.Groups[0].Policy.MaxUnhealthyPercent = 20
			o.Groups[0].Size = 7
			broken(o, time.Hour, "w1")
		}, "held w1"},
		"an outage of a zone":         {func(o *repair.Observation) { broken(o, time.Hour, "w0", "w3") }, "held w0, held w3"},
		"the control plane is broken": {func(o *repair.Observation) { o.ControlPlane = "no quorum"; broken(o, time.Hour, "w1") }, "held w1"},
		"a control-plane machine":     {func(o *repair.Observation) { broken(o, time.Hour, "cp-a") }, ""},
		"disabled":                    {func(o *repair.Observation) { o.Groups[0].Policy.Disabled = true; broken(o, time.Hour, "w1") }, ""},
		"begun":                       {func(o *repair.Observation) { broken(o, time.Hour, "w1"); began(o, "w1", time.Minute) }, "evict w1"},
		"evicted":                     {func(o *repair.Observation) { broken(o, time.Hour, "w1"); began(o, "w1", time.Minute).Evicted = true }, "terminate w1"},
		"a budget refuses":            {func(o *repair.Observation) { broken(o, time.Hour, "w1"); began(o, "w1", repair.DrainLimit) }, "terminate w1"},
		"Ready again":                 {func(o *repair.Observation) { began(o, "w1", time.Minute) }, "cancel w1"},
		"turned off": {func(o *repair.Observation) {
			o.Groups[0].Policy.Disabled = true
			broken(o, time.Hour, "w1")
			began(o, "w1", time.Minute)
		}, "cancel w1"},
		"an outage after it began": {func(o *repair.Observation) {
			broken(o, time.Hour, "w0", "w3")
			began(o, "w0", time.Minute).Evicted = true
		}, "held w0, held w3"},
		"it terminates already": {func(o *repair.Observation) {
			broken(o, time.Hour, "w1")
			began(o, "w1", time.Minute).State = repair.Leaving
		}, ""},
	} {
		o := base()
		tc.change(&o)
		d := repair.Decide(o)
		var got []string
		for _, a := range d.Actions {
			got = append(got, string(a.Kind)+" "+a.Machine)
		}

		for _, h := range d.Held {
			got = append(got, "held "+h.Machine)
		}

		if diff := cmp.Diff(tc.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s: (-want +got)\n%s%+v", name, diff, d)
		}
	}
}

func TestPolicyText(t *testing.T) {
	for _, p := range []repair.Policy{{Disabled: true}, {NotReadyFor: 10 * time.Minute, MaxUnhealthyPercent: 20}} {
		got, err := repair.ParsePolicy(p.String())
		if err != nil || got != p {
			t.Errorf("%s: %+v, %v", p, got, err)
		}
	}

	if p, err := repair.ParsePolicy(""); err != nil || p != repair.DefaultPolicy() {
		t.Errorf("without a tag: %+v, %v", p, err)
	}

	for _, text := range []string{"10m", "10 20%", "10m x%"} {
		if p, err := repair.ParsePolicy(text); err == nil {
			t.Errorf("%q: %+v", text, p)
		}
	}
}

// world is a cluster whose machines fail, recover and are replaced.
type world struct {
	o        repair.Observation
	nextID   int
	calm     bool // nothing fails any more
	evicted  map[string]int
	replaced int
}

func newWorld(t *rapid.T) *world {
	w := &world{o: repair.Observation{Now: start}, evicted: map[string]int{}}
	zones := rapid.IntRange(1, 3).Draw(t, "zones")
	for z := range zones {
		w.o.Machines = append(w.o.Machines, repair.Machine{ID: fmt.Sprintf("cp%d", z), Zone: strconv.Itoa(z), State: repair.Running, Ready: true})
	}

	for n := range rapid.IntRange(1, 2).Draw(t, "groups") {
		g := repair.Group{
			Name: fmt.Sprintf("g%d", n),
			Size: rapid.IntRange(1, 8).Draw(t, "size"),
			Policy: repair.Policy{
				NotReadyFor:         time.Duration(rapid.IntRange(1, 10).Draw(t, "notReadyFor")) * time.Minute,
				MaxUnhealthyPercent: rapid.SampledFrom([]int{1, 20, 50, 100}).Draw(t, "percent"),
				Disabled:            rapid.IntRange(0, 9).Draw(t, "disabled") == 0,
			},
		}
		w.o.Groups = append(w.o.Groups, g)
		for i := range g.Size {
			w.launch(g.Name, strconv.Itoa(i%zones)).State = repair.Running
		}
	}

	for n := range w.o.Machines {
		w.o.Machines[n].Ready = true
	}

	return w
}

func (w *world) launch(group, zone string) *repair.Machine {
	w.nextID++
	w.o.Machines = append(w.o.Machines, repair.Machine{ID: fmt.Sprintf("i-%03d", w.nextID), Group: group, Zone: zone, State: repair.Starting})

	return &w.o.Machines[len(w.o.Machines)-1]
}

func (w *world) find(id string) *repair.Machine {
	for n := range w.o.Machines {
		if w.o.Machines[n].ID == id {
			return &w.o.Machines[n]
		}
	}

	return nil
}

func (w *world) fail(m *repair.Machine) {
	if m.State == repair.Running && m.Ready {
		m.Ready = false
		m.Since = w.o.Now
	}
}

// disturb lets something fail or recover.
func (w *world) disturb(t *rapid.T) {
	m := &w.o.Machines[rapid.IntRange(0, len(w.o.Machines)-1).Draw(t, "machine")]
	switch rapid.IntRange(0, 9).Draw(t, "fault") {
	case 0, 1, 2:
		w.fail(m)
	case 3:
		m.Ready = m.State == repair.Running
	case 4:
		for n := range w.o.Machines {
			if w.o.Machines[n].Zone == m.Zone {
				w.fail(&w.o.Machines[n])
			}
		}
	case 5:
		for n := range w.o.Machines {
			w.o.Machines[n].Ready = w.o.Machines[n].State == repair.Running
		}
	case 6:
		w.o.ControlPlane = rapid.SampledFrom([]string{"", "no quorum"}).Draw(t, "control plane")
	}
}

// act applies the decision; the leader is killed after any number of actions.
func (w *world) act(t *rapid.T, d repair.Decision) {
	before := w.o
	before.Machines = append([]repair.Machine{}, w.o.Machines...)
	for _, a := range d.Actions {
		if !w.calm && rapid.IntRange(0, 9).Draw(t, "killed") == 0 {
			return
		}

		m := w.find(a.Machine)
		switch a.Kind {
		case repair.Begin:
			w.check(t, before, a, *m)
			m.Began = w.o.Now
			w.evicted[m.ID] = rapid.IntRange(0, 8).Draw(t, "rounds of evictions")
		case repair.Evict:
			w.evicted[m.ID]--
			m.Evicted = w.evicted[m.ID] <= 0
		case repair.Terminate:
			w.check(t, before, a, *m)
			if m.Began.IsZero() {
				t.Fatalf("%+v without a drain", a)
			}

			m.State = repair.Leaving
			group, zone := m.Group, m.Zone
			w.launch(group, zone)
			w.replaced++
		case repair.Cancel:
			m.Began = time.Time{}
			m.Evicted = false
		}
	}
}

// check checks the invariants of an action that takes a machine out of service, with its own arithmetic.
func (w *world) check(t *rapid.T, o repair.Observation, a repair.Action, m repair.Machine) {
	var policy repair.Policy
	size := 0
	for _, g := range o.Groups {
		if g.Name == m.Group {
			policy = g.Policy
			size = g.Size
		}
	}

	unhealthy, broken, nodes, present := 0, 0, 0, 0
	for _, x := range o.Machines {
		if x.Group == m.Group && x.State != repair.Leaving {
			present++
			if x.State == repair.Starting || !x.Ready {
				unhealthy++
			}
		}

		if x.Zone == m.Zone && x.State == repair.Running {
			nodes++
			if !x.Ready {
				broken++
			}
		}
	}

	unhealthy += max(0, size-present)
	switch {
	case m.Group == "":
		t.Fatalf("%+v: a control-plane machine", a)
	case policy.Disabled:
		t.Fatalf("%+v: repair is turned off", a)
	case m.Ready || m.State != repair.Running:
		t.Fatalf("%+v: %+v works", a, m)
	case w.o.Now.Sub(m.Since) < policy.NotReadyFor && m.Began.IsZero():
		t.Fatalf("%+v: %+v is not due at %s", a, m, w.o.Now)
	case o.ControlPlane != "":
		t.Fatalf("%+v: the control plane is broken", a)
	case broken > 1 && broken > nodes-broken:
		t.Fatalf("%+v: %d of %d nodes of the zone are broken", a, broken, nodes)
	case unhealthy > 1 && unhealthy*100 > size*policy.MaxUnhealthyPercent:
		t.Fatalf("%+v: %d of %d are unhealthy, at most %d%% may be", a, unhealthy, size, policy.MaxUnhealthyPercent)
	}
}

// step advances the clock; machines that start become Ready, and those that leave are gone.
func (w *world) step(t *rapid.T) {
	w.o.Now = w.o.Now.Add(time.Minute)
	var left []repair.Machine
	for _, m := range w.o.Machines {
		switch m.State {
		case repair.Leaving:
			continue
		case repair.Starting:
			if w.calm || rapid.Bool().Draw(t, "boots") {
				m.State = repair.Running
				m.Ready = true
			}
		case repair.Running:
		}

		left = append(left, m)
	}

	w.o.Machines = left
}

// TestHistories checks over random histories that repairs keep to their limits, and that a broken machine is replaced
// once nothing else is wrong. Run it with -rapid.checks=10000; rapid prints the seed of a failure.
func TestHistories(t *testing.T) {
	total := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(5, 40).Draw(t, "minutes") {
			w.disturb(t)
			w.act(t, repair.Decide(w.o))
			w.step(t)
		}

		// Everything recovers except for one worker of a group with repair.
		w.calm = true
		w.o.ControlPlane = ""
		w.step(t)
		for n := range w.o.Machines {
			w.o.Machines[n].Ready = true
		}

		var broken string
		for n := range w.o.Machines {
			m := &w.o.Machines[n]
			if g := w.o.Groups[0]; m.Group == g.Name && !g.Policy.Disabled {
				w.fail(m)
				broken = m.ID
				break
			}
		}

		for range 30 {
			w.act(t, repair.Decide(w.o))
			w.step(t)
		}

		if broken != "" && w.find(broken) != nil {
			t.Fatalf("%s was not replaced: %+v", broken, w.o)
		}

		for _, m := range w.o.Machines {
			if !m.Began.IsZero() || !m.Ready {
				t.Fatalf("%+v is left", m)
			}
		}

		total += w.replaced
	})
	if total == 0 {
		t.Error("no machine was replaced in any history")
	}
}
