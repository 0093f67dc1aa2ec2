// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

func possibleSlots() []string { return []string{"a", "b", "c", "d", "e"} }

// sizeMachine is the machine of a slot, with its agent and its volume.
type sizeMachine struct {
	slots    []string // of the node document that it has
	volume   string
	data     uint64 // id of the member whose data the volume has; 0: none
	added    uint64 // id of the learner that was added for the volume
	up       bool   // etcd runs
	damaged  uint64 // id of the member with whose data etcd ends at each start; 0: none
	again    bool   // a learner's data was set aside because etcd rejected it, since the member voted last
	isolated bool   // nobody reaches it, and it reaches nobody
	// adding and promoting are requests that were sent, after the current document was read.
	adding, promoting bool
	// looked is the membership that the task for the size has read; noted are the slots that it has recorded.
	looked []etcd.MemberState
	noted  map[string]bool
	// watched is what it has seen of the learner, and clearing the id of the one that it removes, after it has looked again.
	watched  etcd.LearnerWatch
	clearing uint64
}

// sizeWorld simulates a control plane whose size changes: the published document, machines, etcd's membership, the records in
// the store, and the command that changes the size.
type sizeWorld struct {
	machines map[string]*sizeMachine
	members  []etcd.Member
	leader   uint64
	marker   *etcd.BootstrapMarker
	joined   map[string]bool
	absent   map[string]bool
	// published are the slots of the current document, and wished those of the manifest.
	published, wished []string
	made              int
	founded           int
	broken            bool // faults have destroyed the data of a majority
	now               time.Time
	added             map[uint64]time.Time // when learners were added
	started           map[uint64]bool      // members that have started without data
	revision          int64
}

func newSizeWorld(size int) *sizeWorld {
	w := &sizeWorld{
		machines: map[string]*sizeMachine{}, joined: map[string]bool{}, absent: map[string]bool{},
		added: map[uint64]time.Time{}, started: map[uint64]bool{}, now: time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC),
	}
	w.wished = possibleSlots()[:size]
	w.published = w.wished
	for _, slot := range w.wished {
		w.launch(slot)
	}
	return w
}

func (w *sizeWorld) next() int {
	w.made++
	return w.made
}

func (w *sizeWorld) launch(slot string) {
	w.machines[slot] = &sizeMachine{slots: w.published, volume: fmt.Sprintf("vol-%s%d", slot, w.next()), noted: map[string]bool{}}
}

func (w *sizeWorld) find(slot string) int {
	return slices.IndexFunc(w.members, func(m etcd.Member) bool { return m.Slot == slot })
}

// isHealthy reports whether a member runs and is reached by the others.
func (w *sizeWorld) isHealthy(m etcd.Member) bool {
	machine := w.machines[m.Slot]
	return machine != nil && machine.up && !machine.isolated && machine.data == m.ID
}

func (w *sizeWorld) count(of []etcd.Member) (voters, healthy int) {
	for _, m := range of {
		if !m.Learner {
			voters++
			if w.isHealthy(m) {
				healthy++
			}
		}
	}
	return voters, healthy
}

func (w *sizeWorld) hasQuorum(of []etcd.Member) bool {
	voters, healthy := w.count(of)
	return voters > 0 && healthy > voters/2
}

// serves reports whether a machine gets an answer of etcd.
func (w *sizeWorld) serves(m *sizeMachine) bool { return !m.isolated && w.hasQuorum(w.members) }

// elect chooses another leader if the present one is not healthy.
func (w *sizeWorld) elect() {
	at := slices.IndexFunc(w.members, func(m etcd.Member) bool { return m.ID == w.leader && !m.Learner && w.isHealthy(m) })
	if at >= 0 || !w.hasQuorum(w.members) {
		return
	}
	for _, m := range w.members {
		if !m.Learner && w.isHealthy(m) {
			w.leader = m.ID
		}
	}
}

func (w *sizeWorld) facts(slot string) etcd.Facts {
	m := w.machines[slot]
	f := etcd.Facts{
		Slot: slot, Slots: m.slots, Volume: m.volume, HasData: m.data != 0, Marker: w.marker, Absent: w.absent[slot],
		Visible: map[string]string{}, Joined: slices.Sorted(maps.Keys(w.joined)), Added: m.added,
	}
	for s, other := range w.machines {
		f.Visible[s] = other.volume
	}
	f.Members = w.visible(m)
	f.Comparison.Equal = f.NeedsComparison()
	return f
}

// visible returns the membership as a machine reads it; nil without an answer.
func (w *sizeWorld) visible(m *sizeMachine) []etcd.Member {
	var out []etcd.Member
	if w.serves(m) {
		for _, member := range w.members {
			member.Healthy = w.isHealthy(member)
			out = append(out, member)
		}
	}
	return out
}

// converge does one step of the start of a member.
func (w *sizeWorld) converge(t *rapid.T, slot string) {
	m := w.machines[slot]
	if m.up {
		return
	}
	switch a := etcd.Decide(w.facts(slot)); a.Type {
	case etcd.ActionCreateMarker:
		volumes := map[string]string{}
		for _, s := range m.slots {
			volumes[s] = w.machines[s].volume
		}
		marker := etcd.NewBootstrapMarker("t", volumes)
		w.marker = &marker
	case etcd.ActionStartNew:
		w.startNew(t, slot)
	case etcd.ActionStartExisting:
		m.up = m.damaged != m.data && slices.ContainsFunc(w.members, func(e etcd.Member) bool { return e.ID == m.data })
		if !m.up && etcd.WasRemoved(w.visible(m), slot) && slices.Contains(w.published, slot) {
			m.data = 0
		}
	case etcd.ActionSetAsideLeft:
		if slices.Contains(w.published, slot) {
			m.data = 0
		}
	case etcd.ActionRemoveMember:
		if i := w.find(slot); w.members[i].ID != a.MemberID {
			t.Fatalf("slot %s removes another's member", slot)
		}
		w.remove(t, a.MemberID)
	case etcd.ActionAddLearner:
		m.adding = slices.Contains(w.published, slot)
	case etcd.ActionStartJoining:
		w.absent[slot] = false
		i := w.find(slot)
		if !w.members[i].Learner {
			t.Fatalf("slot %s starts empty as a voter", slot)
		}
		if w.started[w.members[i].ID] {
			t.Fatalf("slot %s starts member %+v once more without data", slot, w.members[i])
		}
		m.data, m.up, w.started[w.members[i].ID] = w.members[i].ID, true, true
	default:
	}
}

func (w *sizeWorld) startNew(t *rapid.T, slot string) {
	if w.members == nil {
		w.founded++
		for _, s := range slices.Sorted(maps.Keys(w.marker.Volumes)) {
			w.members = append(w.members, etcd.Member{ID: uint64(w.next()), Slot: s})
		}
	}
	i := w.find(slot)
	if i < 0 && w.hasStarted() { // the others have removed it before it has started for the first time, and refuse it
		w.machines[slot].data = uint64(w.next())
		return
	}
	if i < 0 || w.members[i].Learner || w.joined[slot] {
		t.Fatalf("slot %s founds a cluster: %+v", slot, w.members)
	}
	w.machines[slot].data, w.machines[slot].up, w.members[i].Name = w.members[i].ID, true, "etcd-"+slot
}

// hasStarted reports whether a member has data.
func (w *sizeWorld) hasStarted() bool {
	return slices.ContainsFunc(w.members, func(m etcd.Member) bool { return m.Name != "" })
}

// remove removes a member as etcd does, which refuses to lose the quorum.
func (w *sizeWorld) remove(t *rapid.T, id uint64) {
	i := slices.IndexFunc(w.members, func(m etcd.Member) bool { return m.ID == id })
	if i < 0 {
		return
	}
	rest := slices.Delete(slices.Clone(w.members), i, i+1)
	if !w.members[i].Learner && !w.hasQuorum(rest) {
		return // etcd rejects it; the view of the agent was old
	}
	if m := w.machines[w.members[i].Slot]; m != nil && m.data == id {
		m.up = false // etcd ends
	}
	w.members = rest
	if !w.hasQuorum(w.members) {
		t.Fatalf("removing member %d lost the quorum", id)
	}
}

// deliver lets the requests of a machine arrive.
func (w *sizeWorld) deliver(t *rapid.T, slot string) {
	m := w.machines[slot]
	i := w.find(slot)
	if m.adding && i < 0 && w.serves(m) {
		if !slices.ContainsFunc(w.members, func(e etcd.Member) bool { return e.Learner }) {
			w.members = append(w.members, etcd.Member{ID: uint64(w.next()), Slot: slot, Learner: true})
			m.added = w.members[len(w.members)-1].ID
			w.added[m.added] = w.now
		}
	}
	if m.promoting && i >= 0 && w.members[i].Learner && w.isHealthy(w.members[i]) && w.serves(m) {
		w.members[i].Learner = false
		if !w.hasQuorum(w.members) {
			t.Fatalf("promoting the member of slot %s lost the quorum", slot)
		}
	}
	m.adding, m.promoting = false, false
}

// tasks does what a machine does while its member runs.
func (w *sizeWorld) tasks(t *rapid.T, slot string) {
	m := w.machines[slot]
	i := w.find(slot)
	if !m.up || i < 0 || w.members[i].ID != m.data {
		return
	}
	if w.serves(m) {
		w.members[i].Name = "etcd-" + slot
	}
	if w.members[i].Learner {
		m.promoting = slices.Contains(w.published, slot)
		if !m.promoting && w.serves(m) {
			w.remove(t, m.data)
			m.up = false
		}
		return
	}
	w.joined[slot], m.again = true, false
	w.elect()
	if !slices.Contains(w.published, slot) && w.leader == w.members[i].ID && w.isHealthy(w.members[i]) {
		for _, e := range w.members {
			if slices.Contains(w.published, e.Slot) && !e.Learner && w.isHealthy(e) {
				w.leader = e.ID
			}
		}
	}
}

// follow gives a machine the current document, unless its slot is not in it.
func (w *sizeWorld) follow(slot string) {
	m := w.machines[slot]
	if slices.Contains(w.published, slot) && m.up && !slices.Equal(m.slots, w.published) {
		m.slots, m.noted, m.looked = w.published, map[string]bool{}, nil
	}
}

// look reads the membership for the task for the size.
func (w *sizeWorld) look(slot string) {
	m := w.machines[slot]
	m.looked = nil
	if !m.up || !w.serves(m) {
		return
	}
	w.elect()
	for _, e := range w.members {
		e.Healthy = w.isHealthy(e)
		state := etcd.MemberState{Member: e, Leader: e.ID == w.leader}
		if e.Healthy {
			w.revision++
			state.Revision = w.revision
		}
		m.looked = append(m.looked, state)
	}
	m.watched = m.watched.Observe(m.looked, w.now)
}

// resize acts on what a machine has looked at, perhaps long before.
func (w *sizeWorld) resize(t *rapid.T, slot string) {
	m := w.machines[slot]
	looked := m.looked
	m.looked = nil
	if looked == nil || !m.up || !slices.Equal(m.slots, w.published) {
		return
	}
	f := etcd.ResizeFacts{Slot: slot, Slots: m.slots, Members: looked}
	at := slices.IndexFunc(looked, func(e etcd.MemberState) bool { return e.Slot == slot })
	if at < 0 || !looked[at].Leader {
		return
	}
	step := etcd.DecideResize(f)
	for _, s := range f.Absent(possibleSlots()) {
		if !m.noted[s] {
			w.absent[s], m.noted[s] = true, true
		}
	}
	if step.Type != etcd.ResizeRemove || !w.serves(m) {
		return
	}
	for _, e := range looked {
		if e.ID == step.MemberID {
			if slices.Contains(w.published, e.Slot) {
				t.Fatalf("the member of slot %s is removed, which is in the control plane", e.Slot)
			}
			delete(m.noted, e.Slot)
			checkRemoval(t, looked, e)
		}
	}
	w.remove(t, step.MemberID)
}

// checkRemoval checks that the others are a quorum without a member, as far as the agent knows, and that none of them joins.
func checkRemoval(t *rapid.T, looked []etcd.MemberState, removed etcd.MemberState) {
	voters, healthy := 0, 0
	for _, e := range looked {
		if e.ID == removed.ID || e.Learner && removed.Learner {
			continue
		}
		if e.Learner {
			t.Fatalf("member %+v leaves while %+v joins", removed, e)
		}
		voters++
		if e.Healthy {
			healthy++
		}
	}
	if healthy <= voters/2 {
		t.Fatalf("without member %+v only %d of %d would work", removed, healthy, voters)
	}
}

// command does one step of 'slipway apply'. It can be killed between any two.
func (w *sizeWorld) command(t *rapid.T) {
	if w.marker == nil && len(w.wished) < len(w.machines) { // refused
		w.wished = w.published
	}
	if !slices.Equal(w.published, w.wished) {
		w.published = w.wished
		return
	}
	for _, slot := range possibleSlots() {
		_, exists := w.machines[slot]
		isWished := slices.Contains(w.wished, slot)
		switch {
		case isWished && !exists:
			w.launch(slot)
			return
		case !isWished && exists && w.absent[slot]:
			if i := w.find(slot); i >= 0 && !w.members[i].Learner {
				t.Fatalf("the machine of slot %s ends while its member votes: %+v", slot, w.members)
			}
			delete(w.machines, slot)
			return
		}
	}
}

// lose loses the volume of a slot.
func (w *sizeWorld) lose(slot string) {
	m := w.machines[slot]
	*m = sizeMachine{slots: m.slots, volume: fmt.Sprintf("vol-%s%d", slot, w.next()), noted: map[string]bool{}}
	voters, withData := 0, 0
	for _, e := range w.members {
		if !e.Learner {
			voters++
			if other := w.machines[e.Slot]; other != nil && other.data == e.ID {
				withData++
			}
		}
	}
	w.broken = w.broken || w.marker != nil && (voters == 0 || withData <= voters/2)
}

func (w *sizeWorld) check(t *rapid.T) {
	learners := 0
	for _, m := range w.members {
		if m.Learner {
			learners++
		}
	}
	if learners > 1 || w.founded > 1 {
		t.Fatalf("%d learners, founded %d times: %+v", learners, w.founded, w.members)
	}
}

// settle lets everything work without faults, and checks that the control plane has the wished size.
func (w *sizeWorld) settle(t *rapid.T) {
	w.settleWithoutLearner(t)
	w.work(t, 60, "")
	var have []string
	for _, m := range w.members {
		if m.Learner || !w.isHealthy(m) {
			t.Fatalf("member %+v does not work: %+v", m, w.machines[m.Slot])
		}
		have = append(have, m.Slot)
	}
	slices.Sort(have)
	if !slices.Equal(have, w.wished) || len(w.machines) != len(w.wished) {
		t.Fatalf("members %v, machines %v, wished %v", have, slices.Sorted(maps.Keys(w.machines)), w.wished)
	}
}
