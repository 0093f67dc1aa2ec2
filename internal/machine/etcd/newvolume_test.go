// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

func TestDecideVolume(t *testing.T) {
	const after = 5 * time.Minute
	start := time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)
	whole := etcd.VolumeFacts{
		Slot: "c", After: after, Lost: "vol-c0",
		Members: []etcd.Member{{ID: 1, Slot: "a", Healthy: true}, {ID: 2, Slot: "b", Healthy: true}, {ID: 3, Slot: "c"}},
	}
	with := func(change func(f *etcd.VolumeFacts)) etcd.VolumeFacts {
		f := whole
		f.Members = slices.Clone(whole.Members)
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		facts  etcd.VolumeFacts
		looks  int // every 10 seconds
		create bool
		reason string
	}{
		"lost":            {whole, 31, true, "volume vol-c0 of slot c is lost"},
		"not for long":    {whole, 30, false, "for 4m50s: a new one is created after 5m0s"},
		"off":             {with(func(f *etcd.VolumeFacts) { f.After = 0 }), 99, false, "--recreate-lost-volumes"},
		"never had data":  {with(func(f *etcd.VolumeFacts) { f.Lost = "" }), 99, false, "never had data"},
		"exists":          {with(func(f *etcd.VolumeFacts) { f.Found = []string{"vol-c0"} }), 99, false, "has volume vol-c0"},
		"member answers":  {with(func(f *etcd.VolumeFacts) { f.Members[2].Healthy = true }), 99, false, "its member answers"},
		"no quorum":       {with(func(f *etcd.VolumeFacts) { f.Members = nil }), 99, false, "no quorum"},
		"member removed":  {with(func(f *etcd.VolumeFacts) { f.Members = f.Members[:2] }), 31, true, ""},
		"another is down": {with(func(f *etcd.VolumeFacts) { f.Members[1].Healthy = false }), 99, false, "no quorum"},
		"alone":           {with(func(f *etcd.VolumeFacts) { f.Members = f.Members[2:] }), 99, false, "no quorum"},
		"busy":            {with(func(f *etcd.VolumeFacts) { f.Busy = "the lock is held" }), 99, false, "the lock is held"},
	} {
		t.Run(name, func(t *testing.T) {
			var w etcd.VolumeWatch
			for n := range c.looks {
				w = w.Observe(c.facts, start.Add(time.Duration(n)*10*time.Second))
			}
			got := etcd.DecideVolume(c.facts, w)
			if got.Create != c.create || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("got %+v, want %t: %s", got, c.create, c.reason)
			}
		})
	}
	// Neither a pause of the agent, nor an earlier loss, nor a clock that was set counts.
	w := etcd.VolumeWatch{}.Observe(whole, start)
	for name, later := range map[string]time.Time{"pause": start.Add(time.Hour), "clock": start.Add(-time.Hour)} {
		if got := etcd.DecideVolume(whole, w.Observe(whole, later)); got.Create {
			t.Errorf("%s: %+v", name, got)
		}
	}
	another := with(func(f *etcd.VolumeFacts) { f.Lost = "vol-c1" })
	if got := etcd.DecideVolume(another, w); got.Create {
		t.Errorf("another volume was lost: %+v", got)
	}
}

// volumeWorld simulates the volumes of one slot in an EC2 that lists changes late, machines of the slot whose agents are killed
// between any two effects, etcd's quorum of the others, and an operator.
type volumeWorld struct {
	now    time.Time
	record string // where the slot's member had data last
	// created is the record of the machines: which volume was lost, and which one they created last.
	created [2]string
	// volumes by id; a new one is listed from a time on. Tagged is whether it has the slot's tags.
	volumes map[string]*listedVolume
	tokens  map[string]string
	agents  []modelMaker
	quorum  bool
	made    int
}

type listedVolume struct {
	listed     time.Time
	tagged     bool
	restorable bool // it is away for a while: its zone is down, or its state is an error
}

// modelMaker is the agent of one machine of the slot.
type modelMaker struct {
	watch   etcd.VolumeWatch
	pending string    // the token of a request that was sent
	answer  [2]string // what the agent is about to record
	joined  string    // the slot's volume with data, by its last look
}

const (
	makeAfter = 2 * time.Minute
	listDelay = time.Minute // at most, until EC2 lists a new volume
)

func (w *volumeWorld) create(token string, delay time.Duration) string {
	if id := w.tokens[token]; id != "" {
		return id
	}
	w.made++
	id := fmt.Sprintf("vol-%d", w.made)
	w.volumes[id] = &listedVolume{listed: w.now.Add(delay), tagged: true}
	if token != "" {
		w.tokens[token] = id
	}
	return id
}

func (w *volumeWorld) facts() etcd.VolumeFacts {
	f := etcd.VolumeFacts{Slot: "c", After: makeAfter, Lost: w.record}
	if w.created[0] == w.record {
		f.Lost = w.created[1]
	}
	for id, v := range w.volumes {
		if !w.now.Before(v.listed) && (v.tagged || id == w.record || id == f.Lost) {
			f.Found = append(f.Found, id)
		}
	}
	if w.quorum {
		f.Members = []etcd.Member{{ID: 1, Slot: "a", Healthy: true}, {ID: 2, Slot: "b", Healthy: true}, {ID: 3, Slot: "c"}}
	}
	return f
}

// look lets an agent look and decide.
func (w *volumeWorld) look(agent int) {
	a := &w.agents[agent]
	f := w.facts()
	a.watch = a.watch.Observe(f, w.now)
	if etcd.DecideVolume(f, a.watch).Create {
		a.watch = etcd.VolumeWatch{}
		a.pending = f.Lost
		a.joined = w.record
	}
}

// deliver lets the request of an agent arrive.
func (w *volumeWorld) deliver(t *rapid.T, agent int, delay time.Duration) {
	a := &w.agents[agent]
	if a.pending == "" {
		return
	}
	before := w.made
	a.answer = [2]string{a.joined, w.create(a.pending, delay)}
	a.pending = ""
	if w.made > before && len(w.volumes) > 1 {
		t.Fatalf("a second volume was created: %+v", w.volumes)
	}
}

// note lets an agent record which volume it has created.
func (w *volumeWorld) note(agent int) {
	if a := &w.agents[agent]; a.answer[1] != "" {
		w.created = a.answer
		a.answer = [2]string{}
	}
}

// join lets the slot's member get data on its volume.
func (w *volumeWorld) join() {
	for id, v := range w.volumes {
		if v.tagged && !v.restorable && w.quorum {
			w.record = id
		}
	}
}

// pass lets time pass while both machines look.
func (w *volumeWorld) pass(t *rapid.T, looks int) {
	for range looks {
		w.now = w.now.Add(10 * time.Second)
		for agent := range w.agents {
			w.look(agent)
			w.deliver(t, agent, 0)
			w.note(agent)
		}
	}
}

// TestVolumeHistories: machines of a slot never create a second volume, and none while the former one exists under whatever
// tags and in whatever state; after a loss a volume is created once the others have a quorum.
func TestVolumeHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &volumeWorld{
			now: time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC), volumes: map[string]*listedVolume{}, tokens: map[string]string{},
			agents: make([]modelMaker, 2), quorum: true,
		}
		w.record = w.create("", 0)
		agent := func() int { return rapid.IntRange(0, 1).Draw(t, "agent") }
		wait := func() { w.now = w.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second) }
		t.Repeat(map[string]func(*rapid.T){
			"look": func(*rapid.T) { w.look(agent()); wait() },
			"deliver": func(t *rapid.T) {
				w.deliver(t, agent(), rapid.SampledFrom([]time.Duration{0, listDelay}).Draw(t, "delay"))
			},
			"note":   func(*rapid.T) { w.note(agent()) },
			"kill":   func(*rapid.T) { w.agents[agent()] = modelMaker{} },
			"wait":   func(*rapid.T) { wait() },
			"pass":   func(t *rapid.T) { w.pass(t, rapid.IntRange(1, 20).Draw(t, "looks")) },
			"pause":  func(*rapid.T) { w.now = w.now.Add(time.Hour) },
			"quorum": func(*rapid.T) { w.quorum = !w.quorum },
			"join":   func(*rapid.T) { w.join() },
			"untag": func(*rapid.T) {
				for id, v := range w.volumes {
					v.tagged = v.tagged && id != w.record
				}
			},
			"away": func(*rapid.T) {
				for _, v := range w.volumes {
					v.restorable = !v.restorable
				}
			},
			"lose": func(t *rapid.T) { // with data or without; EC2 remembers its token
				delete(w.volumes, fmt.Sprintf("vol-%d", rapid.IntRange(1, max(1, w.made)).Draw(t, "volume")))
			},
		})
		w.quorum = true
		// A late answer about an earlier volume may be recorded: then each volume after it takes its time again.
		for range w.made + 1 {
			w.pass(t, int((makeAfter+listDelay)/(10*time.Second))+2)
		}
		if len(w.volumes) != 1 {
			t.Fatalf("%d volumes: %+v", len(w.volumes), w.volumes)
		}
	})
}
