// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// clear decides about a learner that is stuck, as the task for the size does after it has looked again.
func (w *sizeWorld) clear(t *rapid.T, slot string) {
	w.look(slot)
	m := w.machines[slot]
	step := etcd.DecideLearner(etcd.ResizeFacts{Slot: slot, Slots: m.slots, Members: m.looked}, m.watched)
	if step.Type != etcd.ResizeRemove {
		return
	}
	i := slices.IndexFunc(w.members, func(e etcd.Member) bool { return e.ID == step.MemberID })
	if !w.members[i].Learner || w.isHealthy(w.members[i]) && w.now.Sub(w.added[step.MemberID]) < etcd.LearnerLimit ||
		w.now.Sub(w.added[step.MemberID]) < etcd.LearnerSilence {
		t.Fatalf("%s: member %+v is removed", step.Reason, w.members[i])
	}
	m.clearing = step.MemberID
}

// cleared lets the request arrive that removes a learner. It may have been promoted meanwhile.
func (w *sizeWorld) cleared(t *rapid.T, slot string) {
	m := w.machines[slot]
	if m.clearing != 0 && w.serves(m) {
		w.remove(t, m.clearing)
	}
	m.clearing = 0
}

// wait lets time pass, while the tasks of all machines look at the members.
func (w *sizeWorld) wait(t *rapid.T, minutes int) {
	for range minutes * 2 {
		w.now = w.now.Add(30 * time.Second)
		for _, slot := range slices.Sorted(maps.Keys(w.machines)) {
			w.clear(t, slot)
		}
	}
}

// work lets everything work without faults for a number of rounds, except for the machine of the slot gone.
func (w *sizeWorld) work(t *rapid.T, rounds int, gone string) {
	for range rounds {
		w.command(t)
		w.now = w.now.Add(15 * time.Second)
		for _, slot := range slices.Sorted(maps.Keys(w.machines)) {
			if slot == gone {
				continue
			}
			w.machines[slot].isolated = false
			w.converge(t, slot)
			w.reject(t, slot)
			w.tasks(t, slot)
			w.deliver(t, slot)
			w.follow(slot)
			w.look(slot)
			w.resize(t, slot)
			w.clear(t, slot)
			w.cleared(t, slot)
			w.check(t)
		}
	}
}

// settleWithoutLearner lets everything work except for the machine of the learner, which never returns. It keeps no other slot
// from joining.
func (w *sizeWorld) settleWithoutLearner(t *rapid.T) {
	at := w.learner()
	if at < 0 {
		return
	}
	gone := w.members[at].Slot
	if m := w.machines[gone]; m != nil {
		w.crash(gone)
		m.isolated = true
	}
	w.work(t, 120, gone)
	for _, slot := range w.wished {
		i := w.find(slot)
		if slot != gone && (i < 0 || w.members[i].Learner || !w.isHealthy(w.members[i])) {
			t.Fatalf("slot %s does not vote while the machine of learner %s is away: %+v", slot, gone, w.members)
		}
	}
}

// crash ends the processes of a machine.
func (w *sizeWorld) crash(slot string) {
	m := w.machines[slot]
	m.up, m.adding, m.promoting, m.looked, m.noted = false, false, false, nil, map[string]bool{}
	m.watched, m.clearing = etcd.LearnerWatch{}, 0
}

// pass lets every machine work once, so that histories get beyond the first start.
func (w *sizeWorld) pass(t *rapid.T) {
	for _, slot := range slices.Sorted(maps.Keys(w.machines)) {
		w.converge(t, slot)
		w.deliver(t, slot)
		w.tasks(t, slot)
		w.follow(slot)
	}
}

// damage ends the machine of a learner while it copies: its log is damaged, and etcd ends at each start. Another time
// would need an operator. If there is no learner, the slot loses its volume and joins first.
func (w *sizeWorld) damage(t *rapid.T, slot string) {
	if w.learner() < 0 && w.serves(w.machines[slot]) && len(w.wished) > 1 {
		w.lose(slot)
	}
	for range 3 {
		w.converge(t, slot)
		w.deliver(t, slot)
	}
	i := w.learner()
	if i < 0 {
		return
	}
	m := w.machines[w.members[i].Slot]
	if m == nil || m.data != w.members[i].ID || m.again {
		return
	}
	w.crash(w.members[i].Slot)
	m.damaged = m.data
}

// learner returns the index of the learner; -1 if there is none.
func (w *sizeWorld) learner() int {
	return slices.IndexFunc(w.members, func(m etcd.Member) bool { return m.Learner })
}

// reject decides about a member whose etcd has ended at each start for long.
func (w *sizeWorld) reject(t *rapid.T, slot string) {
	m := w.machines[slot]
	if m.data == 0 || m.damaged != m.data || !w.serves(m) {
		return
	}
	f := etcd.MaintenanceFacts{Now: w.now, Slot: slot, Slots: m.slots, FreeBytes: 10 << 30, CopiedAgain: m.again}
	for _, e := range w.visible(m) {
		f.Members = append(f.Members, etcd.MemberState{Member: e})
	}
	exits := etcd.Exits{Count: etcd.UnstartableExits, Since: w.now.Add(-etcd.UnstartableTime)}
	step := etcd.DecideUnstartable(f, exits, etcd.Comparison{Equal: true})
	if step.Type != etcd.MaintainStepAside {
		return
	}
	i := w.find(slot)
	if !step.Learner || !w.members[i].Learner || m.again {
		t.Fatalf("%s: the data of member %+v is set aside", step.Reason, w.members[i])
	}
	m.data, m.added, m.again = 0, 0, true
}
