// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// restorations is a model of a cluster that is restored, again and again, while machines stop, volumes are lost, agents
// are killed between any two effects, and the store cannot be read.
type restorations struct {
	*rapid.T
	slots       []string
	generations []etcd.Generation
	restored    map[int][]string // by generation: slots that have had its data
	volumes     map[string]*modelVolume
	running     map[string]bool
	// seconds counts them.
	seconds int
	// second are the second machines of slots, each with a volume of its own: see [restorations.swap].
	second map[string]*secondMachine
	// restoredOn names the volume of the first record that a slot has data of a generation.
	restoredOn map[string]string
	members    map[string][]etcd.Member // by identity of an etcd cluster
	used       map[int][]string         // by generation: identities that became a member's data
	next       uint64
	// slow is set if learners are promoted later.
	slow bool
	// reaches reports whether two members reach each other; nil: all do.
	reaches func(from, to string) bool
	// leads reports whether the members of a cluster that a slot reaches have a leader; nil: always.
	leads func(identity, at string) bool
	// documented returns the slots of a machine's document; nil: all.
	documented func(slot string) []string
	// isDetached reports whether the machine of a slot has lost its volume, and nothing that it writes there is stored; nil: none has.
	isDetached func(slot string) bool
	// leaves reports whether a slot is not in the control plane any more; nil: none leaves.
	leaves func(slot string) bool
}

// modelVolume is what a slot's volume holds.
type modelVolume struct {
	name       string // of a second volume of the slot; empty for the first
	identity   string // of the etcd cluster that its data belongs to; empty without data
	generation int    // of the data, or of the cluster that it is about to join
	prepared   string // identity of a restored database that is complete
	preparedOf int    // its generation
	marked     bool   // as the data of a learner
	votes      bool   // its log has the promotion
	member     uint64 // id of the member that the data is of
	added      uint64 // id of the learner that a machine has added for it
}

// isLearner reports whether the data is that of a member that was not promoted, as its agent sees it.
func (v modelVolume) isLearner() bool { return v.identity != "" && v.marked && !v.votes }

func newRestorations(t *rapid.T) *restorations {
	m := &restorations{
		T: t, restored: map[int][]string{}, volumes: map[string]*modelVolume{}, running: map[string]bool{},
		members: map[string][]etcd.Member{}, used: map[int][]string{},
		second: map[string]*secondMachine{}, restoredOn: map[string]string{},
	}
	m.slots = []string{"a", "b", "c", "d", "e"}[:rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "size")]
	for _, slot := range m.slots {
		m.addMember("first", slot, false)
		m.volumes[slot] = &modelVolume{identity: "first", generation: 1, member: m.next}
		m.running[slot] = true
	}
	return m
}

func (m *restorations) addMember(identity, slot string, learner bool) {
	m.next++
	e := etcd.Member{ID: m.next, Slot: slot, Learner: learner}
	if !learner {
		e.Name = "etcd-" + slot
	}
	m.members[identity] = append(m.members[identity], e)
}

// newest returns the newest generation; nil before the first restoration.
func (m *restorations) newest() *etcd.Generation {
	if len(m.generations) == 0 {
		return nil
	}
	return &m.generations[len(m.generations)-1]
}

// alive reports whether the member of a slot runs with data of a cluster, and was not removed from it.
func (m *restorations) alive(identity, slot string) bool {
	v := m.volumes[slot]
	return m.running[slot] && v.identity == identity && m.isMember(slot)
}

// isMember reports whether the data of a slot is that of a member that was not removed.
func (m *restorations) isMember(slot string) bool {
	v := m.volumes[slot]
	return slices.ContainsFunc(m.members[v.identity], func(e etcd.Member) bool { return e.ID == v.member })
}

func (m *restorations) connected(from, to string) bool {
	return from == to || m.reaches == nil || m.reaches(from, to)
}

// list returns the members of a cluster if the member of a slot has a quorum and a leader.
func (m *restorations) list(identity, at string) []etcd.Member {
	if m.leads != nil && !m.leads(identity, at) {
		return nil
	}
	return m.listQuorum(identity, at)
}

// listQuorum returns the members of a cluster if the member of a slot reaches a majority, which can elect a leader.
func (m *restorations) listQuorum(identity, at string) []etcd.Member {
	var out []etcd.Member
	voters, healthy := 0, 0
	for _, e := range m.members[identity] {
		e.Healthy = m.alive(identity, e.Slot) && m.connected(at, e.Slot)
		out = append(out, e)
		if !e.Learner {
			voters++
			if e.Healthy {
				healthy++
			}
		}
	}
	if healthy*2 <= voters {
		return nil
	}
	return out
}

// facts returns what the agent of a slot sees.
func (m *restorations) facts(slot string, storeAnswers bool) (etcd.Facts, bool) {
	v := m.volumes[slot]
	f := etcd.Facts{Slot: slot, Slots: m.slotsOf(slot), Volume: "vol-" + slot, HasData: v.identity != ""}
	f.Marker = &etcd.BootstrapMarker{Token: "first", Volumes: map[string]string{}}
	f.Joined = m.slots
	f.Added = v.added
	if f.HasData {
		f.DataGeneration = v.generation
	}
	if !storeAnswers {
		return f, f.HasData // without data the agent waits for the store
	}
	f.Generation = m.newest()
	if f.Generation != nil {
		f.Prepared = v.prepared != "" && v.preparedOf == f.Generation.Number
		f.Joined = m.restored[f.Generation.Number]
	}
	for _, peer := range m.slots {
		if peer == slot || !slices.Contains(f.Joined, peer) || !m.alive(m.volumes[peer].identity, peer) || !m.connected(slot, peer) {
			continue
		}
		if g := f.Generation; g != nil && !slices.Contains(m.used[g.Number], m.volumes[peer].identity) {
			continue // see [etcd.Manager.ClusterID]
		}
		if f.Members = m.list(m.volumes[peer].identity, peer); f.Members != nil {
			break
		}
	}
	if f.Generation != nil && f.Generation.Slot == slot {
		f.Former = m.former(slot, m.list)
	}
	f.Comparison.Equal = f.NeedsComparison()
	return f, true
}

func (m *restorations) detached(slot string) bool { return m.isDetached != nil && m.isDetached(slot) }

// slotsOf returns the slots of the document of a slot's machine.
func (m *restorations) slotsOf(slot string) []string {
	if m.documented == nil {
		return m.slots
	}
	return m.documented(slot)
}

// former returns the members of an earlier generation that have a quorum, as list finds them from a slot; nil if there are none.
func (m *restorations) former(slot string, list func(identity, at string) []etcd.Member) []etcd.Member {
	for _, peer := range m.slots {
		v := m.volumes[peer]
		if peer == slot || !m.alive(v.identity, peer) || v.generation == m.newest().Number || !m.connected(slot, peer) {
			continue
		}
		if members := list(v.identity, peer); members != nil {
			return members
		}
	}
	return nil
}

// identityOf returns the cluster that a list of members is of.
func (m *restorations) identityOf(members []etcd.Member) string {
	for identity, list := range m.members {
		if len(list) > 0 && slices.ContainsFunc(list, func(e etcd.Member) bool { return e.ID == members[0].ID }) {
			return identity
		}
	}
	m.Fatal("no cluster has the member")
	return ""
}

// step lets the agent of a slot decide once. effects is after how many effects it is killed.
func (m *restorations) step(slot string, storeAnswers bool, effects int) {
	f, known := m.facts(slot, storeAnswers)
	if !known {
		return
	}
	v := m.volumes[slot]
	switch action := etcd.Decide(f); action.Type {
	case etcd.ActionStartNew, etcd.ActionCreateMarker:
		m.Fatalf("slot %s would bootstrap a second cluster: %+v", slot, f)
	case etcd.ActionStartExisting:
		if m.detached(slot) {
			break // etcd ends at its first write
		}
		m.running[slot] = true
		m.publishName(slot)
		if g := m.newest(); g != nil && storeAnswers && v.generation < g.Number {
			m.Fatalf("slot %s runs with data of generation %d, the newest is %d", slot, v.generation, g.Number)
		}
		if v.generation > 1 && storeAnswers {
			m.record(v.generation, slot)
		}
	case etcd.ActionSetAside:
		m.running[slot] = false
		if effects > 0 {
			v.identity, v.generation = "", 0
		}
	case etcd.ActionSetAsideCopy:
		m.Fatalf("slot %s sets its data aside, and no volume is a copy: %+v", slot, f)
	case etcd.ActionSetAsideLeft:
		if m.leaves != nil && m.leaves(slot) {
			break // it does not join again
		}
		m.Fatalf("slot %s sets its data aside, and no slot has left: %+v", slot, f)
	case etcd.ActionRestore:
		m.restore(slot, f, effects)
	case etcd.ActionRemoveMember:
		identity := m.identityOf(f.Members)
		m.members[identity] = slices.DeleteFunc(m.members[identity], func(e etcd.Member) bool { return e.ID == action.MemberID })
	case etcd.ActionAddLearner:
		m.addMember(m.identityOf(f.Members), slot, true)
		if effects > 0 && !m.detached(slot) {
			v.added = m.next
		}
	case etcd.ActionStartJoining:
		m.join(slot, f)
	case etcd.ActionWait:
	}
}

func (m *restorations) restore(slot string, f etcd.Facts, effects int) {
	v, g := m.volumes[slot], f.Generation
	if !f.Prepared {
		if effects == 0 || m.detached(slot) {
			return
		}
		m.next++
		v.prepared, v.preparedOf = fmt.Sprintf("generation %d, restored %d", g.Number, m.next), g.Number
	}
	if effects <= 1 {
		return
	}
	m.record(g.Number, slot)
	if effects <= 2 || g.CheckVolume(slot, m.restoredOn[fmt.Sprint(g.Number, slot)], m.volumeName(slot)) != nil {
		return
	}
	if m.detached(slot) {
		return
	}
	if former := m.former(slot, m.listQuorum); former != nil {
		m.Fatalf("slot %s restores generation %d while members of an earlier one work: %+v", slot, g.Number, former)
	}
	*v = modelVolume{name: v.name, identity: v.prepared, generation: g.Number}
	m.members[v.identity] = nil
	m.addMember(v.identity, slot, false)
	v.member = m.next
	if m.used[g.Number] = append(m.used[g.Number], v.identity); len(m.used[g.Number]) > 1 {
		m.Fatalf("generation %d has two clusters: %v", g.Number, m.used[g.Number])
	}
}

func (m *restorations) record(number int, slot string) {
	if !slices.Contains(m.restored[number], slot) {
		m.restored[number] = append(m.restored[number], slot)
		m.restoredOn[fmt.Sprint(number, slot)] = m.volumeName(slot)
	}
}

// join starts a learner.
func (m *restorations) join(slot string, f etcd.Facts) {
	identity := m.identityOf(f.Members)
	number := 1
	if g := m.newest(); g != nil {
		number = g.Number
		if !slices.Contains(m.used[number], identity) {
			m.Fatalf("slot %s joins %s, which is not of generation %d", slot, identity, number)
		}
	}
	v := m.volumes[slot]
	if m.detached(slot) {
		return // it cannot mark the data
	}
	v.identity, v.generation, v.marked, v.votes = identity, number, true, false
	m.running[slot] = true
	for _, e := range m.members[identity] {
		if e.Slot == slot {
			v.member = e.ID
		}
	}
	if rapid.Bool().Draw(m.T, "published") {
		m.publishName(slot)
	}
}

// publishName lets a member that has started, and reaches the leader, publish its name. In this model it catches up and is promoted
// at the same time, unless m.slow is set.
func (m *restorations) publishName(slot string) {
	v := m.volumes[slot]
	if !m.alive(v.identity, slot) || m.list(v.identity, slot) == nil {
		return
	}
	for i, e := range m.members[v.identity] {
		if e.ID == v.member {
			m.members[v.identity][i].Name = "etcd-" + slot
		}
	}
	if !m.slow {
		m.promote(slot, 10)
	}
}

// promote makes the learner of a slot a voter, if the others have a quorum. Its agent is killed after effects. A member that
// was promoted before learns of it.
func (m *restorations) promote(slot string, effects int) {
	v := m.volumes[slot]
	members := m.members[v.identity]
	at := slices.IndexFunc(members, func(e etcd.Member) bool { return e.ID == v.member })
	if at < 0 || v.identity == "" || !v.marked || !m.running[slot] || m.list(v.identity, slot) == nil {
		return
	}
	if effects > 0 {
		if v.generation > 1 {
			m.record(v.generation, slot) // before it has a vote
		}
		members[at].Learner = false
	}
	if effects > 1 && !members[at].Learner {
		v.votes = true
	}
	if effects > 2 && v.votes {
		v.marked = false
	}
}

// request begins a restoration, as an operator does.
func (m *restorations) request(slot string) {
	m.generations = append(m.generations, etcd.Generation{Number: len(m.generations) + 2, Token: "t", Backup: "b", Slot: slot})
}

// settled reports whether all members run with data of one cluster of the newest generation.
func (m *restorations) settled() bool {
	first := m.volumes[m.slots[0]]
	for _, slot := range m.slots {
		v := m.volumes[slot]
		if !m.running[slot] || v.identity == "" || v.identity != first.identity || v.generation != m.newest().Number {
			return false
		}
	}
	return len(m.members[first.identity]) == len(m.slots)
}

func (m *restorations) settle() bool {
	for range 200 {
		for _, slot := range m.slots {
			m.step(slot, true, 10)
		}
		if m.settled() {
			return true
		}
	}
	return false
}

func TestDecideRestored(t *testing.T) {
	g := &etcd.Generation{Number: 2, Backup: "b1", Slot: "a"}
	moved := func(volume string) *etcd.Generation {
		return &etcd.Generation{Number: 2, Backup: "b1", Slot: "a", Volume: volume}
	}
	base := func(change func(*etcd.Facts)) etcd.Facts {
		f := etcd.Facts{
			Slot: "a", Slots: []string{"a", "b", "c"}, Volume: "v", Generation: g,
			Marker: &etcd.BootstrapMarker{Volumes: map[string]string{"a": "v", "b": "v"}},
		}
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		f    etcd.Facts
		want etcd.ActionType
	}{
		"old data":                 {base(func(f *etcd.Facts) { f.HasData, f.DataGeneration = true, 1 }), etcd.ActionSetAside},
		"restored data":            {base(func(f *etcd.Facts) { f.HasData, f.DataGeneration = true, 2 }), etcd.ActionStartExisting},
		"the store cannot be read": {base(func(f *etcd.Facts) { f.HasData, f.DataGeneration, f.Generation = true, 1, nil }), etcd.ActionStartExisting},
		"the slot that restores":   {base(func(*etcd.Facts) {}), etcd.ActionRestore},
		"killed before the rename": {base(func(f *etcd.Facts) { f.Prepared, f.Joined = true, []string{"a"} }), etcd.ActionRestore},
		"members of before the restoration work": {base(func(f *etcd.Facts) {
			f.Former = []etcd.Member{{ID: 1, Slot: "a"}, {ID: 2, Slot: "b", Healthy: true}, {ID: 3, Slot: "c", Healthy: true}}
		}), etcd.ActionWait},
		"the volume that restores": {base(func(f *etcd.Facts) { f.Generation = moved("v") }), etcd.ActionRestore},
		"the slot's machine in another zone, which was taken for lost": {
			base(func(f *etcd.Facts) { f.Generation = moved("v-new") }), etcd.ActionWait,
		},
		"its volume was lost later":            {base(func(f *etcd.Facts) { f.Joined = []string{"a"} }), etcd.ActionWait},
		"another slot waits":                   {base(func(f *etcd.Facts) { f.Slot = "b" }), etcd.ActionWait},
		"a new volume of the marker waits too": {base(func(f *etcd.Facts) { f.Slot, f.Joined = "b", nil }), etcd.ActionWait},
		"it joins": {base(func(f *etcd.Facts) {
			f.Slot, f.Joined = "b", []string{"a"}
			f.Members = []etcd.Member{{ID: 1, Name: "etcd-a", Slot: "a", Healthy: true}}
			f.Comparison.Equal = true
		}), etcd.ActionAddLearner},
		"nobody has signed that its slot has had the data": {base(func(f *etcd.Facts) { f.Unsigned = "key" }), etcd.ActionWait},
		"nor that another one has had it":                  {base(func(f *etcd.Facts) { f.Slot, f.Unsigned = "b", "key" }), etcd.ActionWait},
		"killed before the rename, with such a record":     {base(func(f *etcd.Facts) { f.Prepared, f.Unsigned = true, "key" }), etcd.ActionRestore},
		"others have signed, and its data was lost": {base(func(f *etcd.Facts) {
			f.Unsigned, f.Joined = "key", []string{"b"}
			f.Members = []etcd.Member{{ID: 2, Name: "etcd-b", Slot: "b", Healthy: true}}
			f.Comparison.Equal = true
		}), etcd.ActionAddLearner},
	} {
		if got := etcd.Decide(c.f); got.Type != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}
