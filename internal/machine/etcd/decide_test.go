// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

func slots() []string { return []string{"a", "b", "c"} }

func initialVolumes() map[string]string {
	return map[string]string{"a": "vol-a0", "b": "vol-b0", "c": "vol-c0"}
}

func voters(healthy ...string) []etcd.Member {
	var out []etcd.Member
	for i, s := range slots() {
		out = append(out, etcd.Member{ID: uint64(i + 1), Name: "etcd-" + s, Slot: s, Healthy: slices.Contains(healthy, s)})
	}
	return out
}

func TestDecide(t *testing.T) {
	marker := &etcd.BootstrapMarker{Token: "t", Volumes: initialVolumes()}
	lost := etcd.Facts{Slot: "a", Slots: slots(), Volume: "vol-a1", Marker: marker, Joined: slots(), Added: 9}
	elsewhere := lost
	elsewhere.Added = 8
	with := func(f etcd.Facts, members []etcd.Member) etcd.Facts {
		f.Members, f.Comparison = members, etcd.Comparison{Equal: true}
		return f
	}
	doubtful := func(f etcd.Facts, members []etcd.Member) etcd.Facts {
		f.Members, f.Comparison = members, etcd.Comparison{Problem: "data differs"}
		return f
	}
	learner := voters("b", "c")
	learner[0] = etcd.Member{ID: 9, Slot: "a", Learner: true}
	started := slices.Clone(learner)
	started[0].Name = "etcd-a"
	other := voters("a", "b", "c")[1:]
	other[1] = etcd.Member{ID: 9, Slot: "c", Learner: true}
	never := voters("b", "c")
	never[0].Name = ""
	copied := etcd.Facts{Slot: "a", Slots: slots(), Volume: "vol-a1", DataVolume: "vol-a0", HasData: true, Marker: marker, Joined: slots()}
	alone := copied
	alone.Slots = []string{"a"}
	for name, c := range map[string]struct {
		facts  etcd.Facts
		do     etcd.ActionType
		reason string
	}{
		"no volume":                  {etcd.Facts{Slot: "a", Slots: slots()}, etcd.ActionWait, "not mounted"},
		"data, no marker":            {etcd.Facts{Slot: "a", Slots: slots(), Volume: "vol-a0", HasData: true}, etcd.ActionStartExisting, ""},
		"data, volume not known":     {etcd.Facts{Slot: "a", Slots: slots(), HasData: true}, etcd.ActionStartExisting, ""},
		"no marker, volumes missing": {etcd.Facts{Slot: "a", Slots: slots(), Volume: "vol-a0", Visible: map[string]string{"a": "vol-a0"}}, etcd.ActionWait, "slot b"},
		"no marker, volumes exist":   {etcd.Facts{Slot: "a", Slots: slots(), Volume: "vol-a0", Visible: initialVolumes()}, etcd.ActionCreateMarker, ""},
		"no marker, another volume":  {etcd.Facts{Slot: "a", Slots: slots(), Volume: "vol-a1", Visible: initialVolumes()}, etcd.ActionWait, "in EC2 is"},
		"marker deleted, joined":     {etcd.Facts{Slot: "a", Slots: slots(), Volume: "vol-a0", Visible: initialVolumes(), Joined: []string{"b"}}, etcd.ActionWait, "restore it"},
		"marker deleted, peers":      {etcd.Facts{Slot: "a", Slots: slots(), Volume: "vol-a0", Visible: initialVolumes(), Members: voters("b", "c")}, etcd.ActionWait, "restore it"},
		"initial member":             {etcd.Facts{Slot: "a", Slots: slots(), Volume: "vol-a0", Marker: marker}, etcd.ActionStartNew, ""},
		"initial member, data lost":  {etcd.Facts{Slot: "a", Slots: slots(), Volume: "vol-a0", Marker: marker, Joined: []string{"a"}}, etcd.ActionWait, "lost"},
		"new volume, never joined":   {etcd.Facts{Slot: "a", Slots: slots(), Volume: "vol-a1", Marker: marker}, etcd.ActionWait, "lost"},
		"lost, peers healthy":        {with(lost, voters("b", "c")), etcd.ActionRemoveMember, ""},
		"lost, voter never started":  {with(lost, never), etcd.ActionRemoveMember, ""},
		"lost, quorum at risk":       {with(lost, voters("b")), etcd.ActionWait, "would lose the quorum"},
		"lost, removed":              {with(lost, voters("a", "b", "c")[1:]), etcd.ActionAddLearner, ""},
		"lost, added":                {with(lost, learner), etcd.ActionStartJoining, ""},
		"lost, added by another":     {with(elsewhere, learner), etcd.ActionRemoveMember, "another machine of the slot"},
		"lost, removed, doubtful":    {doubtful(lost, voters("a", "b", "c")[1:]), etcd.ActionWait, "data differs"},
		"lost, added, doubtful":      {doubtful(lost, learner), etcd.ActionWait, "data differs"},
		"lost, added, lost again":    {with(lost, started), etcd.ActionRemoveMember, ""},
		"lost, another joins":        {with(lost, other), etcd.ActionWait, "one at a time"},
		"a copy, peers healthy":      {with(copied, voters("b", "c")), etcd.ActionSetAsideCopy, "copy of that of volume vol-a0"},
		"a copy, entry removed":      {with(copied, voters("a", "b", "c")[1:]), etcd.ActionSetAsideCopy, ""},
		"a copy, quorum at risk":     {with(copied, voters("b")), etcd.ActionWait, "a quorum of the others answers"},
		"a copy, no quorum":          {copied, etcd.ActionWait, "delete /var/lib/slipway/etcd/data/slipway-volume"},
		"a copy, the only member":    {alone, etcd.ActionStartExisting, ""},
		"single, lost":               {etcd.Facts{Slot: "a", Slots: []string{"a"}, Volume: "v", Marker: marker, Joined: []string{"a"}}, etcd.ActionWait, "restore a backup"},
	} {
		t.Run(name, func(t *testing.T) {
			got := etcd.Decide(c.facts)
			if got.Type != c.do || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("got %s (%s), want %s (%s)", got.Type, got.Reason, c.do, c.reason)
			}
		})
	}
}

// world simulates three slots, their volumes, the store, and the membership, in as much detail as
// the decisions need.
type world struct {
	volume     map[string]string // slot → volume id
	data       map[string]bool   // volume id → has data
	up         map[string]bool   // slot → etcd runs
	marker     *etcd.BootstrapMarker
	joined     map[string]bool
	members    []etcd.Member
	made       int               // volumes made
	bootstraps map[string]bool   // tokens that were started as new
	founded    map[string]int    // slot → how often it was started as new
	added      map[string]uint64 // volume id → learner that was added for it

	// sees reports whether a machine has the address of another slot's machine; nil: every machine has all.
	sees func(from, to string) bool
}

func newWorld() *world {
	return &world{
		volume: initialVolumes(), data: map[string]bool{}, up: map[string]bool{}, joined: map[string]bool{},
		bootstraps: map[string]bool{}, founded: map[string]int{}, added: map[string]uint64{},
	}
}

func (w *world) facts(slot string) etcd.Facts {
	f := etcd.Facts{Slot: slot, Slots: slots(), Volume: w.volume[slot], HasData: w.data[w.volume[slot]], Visible: w.volume, Marker: w.marker}
	f.Added = w.added[f.Volume]
	for _, s := range slots() {
		if w.joined[s] {
			f.Joined = append(f.Joined, s)
		}
	}
	members := slices.Clone(w.members)
	for i := range members {
		members[i].Healthy = w.up[members[i].Slot] && w.reaches(slot, members[i].Slot)
	}
	if slices.ContainsFunc(slots(), func(peer string) bool { return peer != slot && w.answers(slot, peer) }) {
		f.Members = members
		f.Comparison.Equal = f.NeedsComparison()
	}
	return f
}

// reaches reports whether a machine has the address of a slot's machine.
func (w *world) reaches(from, to string) bool { return from == to || w.sees == nil || w.sees(from, to) }

// answers reports whether the member of slot peer, with a quorum, answers a machine. One of two machines that has the address of
// the other one is enough for their members to exchange messages.
func (w *world) answers(slot, peer string) bool {
	if !w.up[peer] || !w.reaches(slot, peer) {
		return false
	}
	healthy, voting := 0, 0
	for _, m := range w.members {
		if m.Learner {
			continue
		}
		voting++
		if w.up[m.Slot] && (w.reaches(peer, m.Slot) || w.reaches(m.Slot, peer)) {
			healthy++
		}
	}
	return healthy > voting/2
}

func (w *world) find(slot string) int {
	return slices.IndexFunc(w.members, func(m etcd.Member) bool { return m.Slot == slot })
}

func (w *world) act(t *rapid.T, slot string) {
	f := w.facts(slot)
	a := etcd.Decide(f)
	switch a.Type {
	case etcd.ActionCreateMarker:
		if w.marker == nil {
			m := etcd.NewBootstrapMarker(fmt.Sprintf("token-%d", len(w.bootstraps)), f.Visible)
			w.marker = &m
		}
	case etcd.ActionStartNew:
		w.bootstraps[w.marker.Token] = true
		w.founded[slot]++
		if len(w.members) == 0 {
			for i, s := range slots() {
				w.members = append(w.members, etcd.Member{ID: uint64(i + 1), Slot: s})
			}
		}
		if i := w.find(slot); i < 0 || w.members[i].Learner {
			t.Fatalf("slot %s bootstrapped a cluster without itself: %+v", slot, w.members)
		}
		w.start(slot)
	case etcd.ActionStartExisting:
		w.start(slot)
	case etcd.ActionSetAsideCopy:
		t.Fatalf("slot %s sets its data aside, and no volume is a copy: %+v", slot, f)
	case etcd.ActionSetAsideLeft:
		t.Fatalf("slot %s sets its data aside, and nobody was removed: %+v", slot, f)
	case etcd.ActionRemoveMember:
		w.remove(t, a.MemberID, slot)
	case etcd.ActionAddLearner:
		w.made++
		w.members = append(w.members, etcd.Member{ID: uint64(100 + w.made), Slot: slot, Learner: true})
		w.added[f.Volume] = uint64(100 + w.made)
	case etcd.ActionStartJoining:
		if i := w.find(slot); !w.members[i].Learner {
			t.Fatalf("slot %s starts empty as a voter", slot)
		}
		w.start(slot)
	case etcd.ActionWait:
	case etcd.ActionSetAside, etcd.ActionRestore: // see TestRestorations
	}
}

func (w *world) start(slot string) {
	w.up[slot], w.data[w.volume[slot]] = true, true
	if i := w.find(slot); i >= 0 {
		w.members[i].Name = "etcd-" + slot
	}
}

func (w *world) remove(t *rapid.T, id uint64, slot string) {
	i := slices.IndexFunc(w.members, func(m etcd.Member) bool { return m.ID == id })
	if i < 0 || w.members[i].Slot != slot {
		t.Fatalf("slot %s removes member %d, which is not its own", slot, id)
	}
	w.members = slices.Delete(w.members, i, i+1)
	voting, healthy := 0, 0
	for _, m := range w.members {
		if !m.Learner {
			voting++
			if w.up[m.Slot] {
				healthy++
			}
		}
	}
	if healthy <= voting/2 {
		t.Fatalf("removing member %d lost the quorum", id)
	}
}

// TestDecideNeverHarms drives random boots, crashes, and losses. The cluster is bootstrapped at
// most once, also if its marker is deleted, no slot bootstraps twice, no removal costs the quorum, and once failures stop, every
// member runs if the data of a quorum exists.
func TestDecideNeverHarms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		lostAtOnce := false
		markerLost := false
		slot := rapid.SampledFrom(slots())
		t.Repeat(map[string]func(*rapid.T){
			"agent": func(t *rapid.T) {
				if s := slot.Draw(t, "slot"); !w.up[s] {
					w.act(t, s)
				}
			},
			"note joined": func(t *rapid.T) {
				if s := slot.Draw(t, "slot"); w.up[s] {
					w.joined[s] = true
				}
			},
			"promote": func(t *rapid.T) {
				if i := w.find(slot.Draw(t, "slot")); i >= 0 && w.up[w.members[i].Slot] {
					w.members[i].Learner = false
				}
			},
			"crash": func(t *rapid.T) { w.up[slot.Draw(t, "slot")] = false },
			"delete marker": func(*rapid.T) {
				if len(w.joined) > 0 {
					w.marker, markerLost = nil, true
				}
			},
			"lose volume": func(t *rapid.T) {
				s := slot.Draw(t, "slot")
				w.made++
				w.up[s], w.volume[s] = false, fmt.Sprintf("vol-%s%d", s, w.made)
				lostAtOnce = lostAtOnce || w.facts(s).Members == nil
			},
			"": func(t *rapid.T) {
				if len(w.bootstraps) > 1 {
					t.Fatalf("bootstrapped twice: %v", w.bootstraps)
				}
				for s, n := range w.founded {
					if n > 1 {
						t.Fatalf("slot %s bootstrapped %d times", s, n)
					}
				}
			},
		})
		if !lostAtOnce && !markerLost { // members without data wait for the marker
			w.settle(t)
		}
	})
}

func (w *world) settle(t *rapid.T) {
	for range 20 {
		for _, s := range slots() {
			if !w.up[s] {
				w.act(t, s)
				continue
			}
			w.joined[s] = true
			if i := w.find(s); i >= 0 {
				w.members[i].Learner = false
			}
		}
	}
	for _, s := range slots() {
		if !w.up[s] {
			t.Fatalf("slot %s never starts: %+v", s, etcd.Decide(w.facts(s)))
		}
	}
}
