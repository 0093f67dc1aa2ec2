// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// slotChanges is how far a control plane has become smaller, while its machines may lose their quorum.
type slotChanges struct {
	// published are the slots of the current document, and documents those that each machine has.
	published []string
	documents map[string][]string
	// absent are the slots that are recorded to have no member, and ended those whose machine and volume were deleted then.
	absent, ended map[string]bool
	// watched is what each machine has seen of a learner.
	watched map[string]etcd.LearnerWatch
}

func newSlotChanges(slots []string) slotChanges {
	c := slotChanges{
		published: slots,
		documents: map[string][]string{},
		absent:    map[string]bool{},
		ended:     map[string]bool{},
		watched:   map[string]etcd.LearnerWatch{},
	}
	for _, slot := range slots {
		c.documents[slot] = slots
	}
	return c
}

// hasLeft reports whether a slot is not in the control plane any more.
func (c *slotChanges) hasLeft(slot string) bool { return !slices.Contains(c.published, slot) }

// shrink publishes a document with two slots less.
func (c *slotChanges) shrink() {
	if len(c.published) > 1 {
		c.published = c.published[:len(c.published)-2]
	}
}

// hasLeader reports whether the members of a cluster that a slot reaches have a leader.
func (w *lostQuorum) hasLeader(identity, at string) bool {
	leader := w.leaders[identity]
	return leader != "" && w.alive(identity, leader) && w.connected(at, leader) && w.isVoter(identity, leader) &&
		w.ledIn[leader] == w.terms[identity]
}

// elect lets majorities without a leader elect one, which takes up to 40 seconds: votes may be split again and again.
func (w *lostQuorum) elect() {
	sides := w.majorities()
	for _, identity := range slices.Sorted(maps.Keys(sides)) {
		if w.hasLeader(identity, sides[identity][0]) {
			delete(w.electing, identity)
			continue
		}
		left, begun := w.electing[identity]
		if !begun {
			left = rapid.SampledFrom([]int{0, 0, 1, 2, 4}).Draw(w.T, "election")
		}
		if w.electing[identity] = left - 1; left <= 0 {
			w.lead(identity, sides[identity])
			delete(w.electing, identity)
		}
	}
}

// mayStep reports whether the agent of a slot may change its member. A slot that has left does not join again, but restores what it
// has begun to restore.
func (w *lostQuorum) mayStep(slot string) bool {
	g := w.newest()
	restores := g != nil && g.Slot == slot && !slices.Contains(w.restored[g.Number], slot)
	return !w.hasLeft(slot) || w.volumes[slot].identity != "" || restores
}

// stopRemoved ends a member that was removed.
func (w *lostQuorum) stopRemoved(slot string) {
	w.running[slot] = w.running[slot] && w.isMember(slot)
}

// followSlots gives a machine the current document, moves the leadership away from a slot that leaves, and removes members as
// the leader's agent does, which is killed after effects.
func (w *lostQuorum) followSlots(slot string, effects int) {
	if !w.up[slot] || !w.exists[slot] || w.storeCut[slot] || effects == 0 {
		return
	}
	identity := w.volumes[slot].identity
	leads := w.running[slot] && identity != "" && w.volumes[slot].generation == w.number() && w.leaders[identity] == slot &&
		w.list(identity, slot) != nil
	if leads {
		w.clearLearner(identity, slot)
	}
	if w.hasLeft(slot) {
		if leads {
			w.yield(identity, slot)
		}
		return
	}
	w.documents[slot] = w.published
	if leads {
		w.resize(identity, slot, effects)
	}
}

// yield gives the leadership to a member that stays.
func (w *lostQuorum) yield(identity, from string) {
	for _, slot := range w.majorities()[identity] {
		if w.hasLeft(slot) {
			continue
		}
		w.copyLog(slot, from)
		delete(w.ledIn, from)
		w.terms[identity]++
		w.leaders[identity] = slot
		w.ledIn[slot] = w.terms[identity]
		w.logs[slot] = append(w.logs[slot], modelEntry{term: w.terms[identity]})
		return
	}
}

// clearLearner removes a learner that is stuck and keeps another slot from joining, as the leader's agent does.
func (w *lostQuorum) clearLearner(identity, slot string) {
	f := etcd.ResizeFacts{Slot: slot, Slots: w.documents[slot]}
	for _, e := range w.list(identity, slot) {
		state := etcd.MemberState{Member: e, Leader: e.Slot == slot}
		if e.Healthy {
			w.ids++
			state.Revision = int64(w.ids)
		}
		f.Members = append(f.Members, state)
	}
	w.watched[slot] = w.watched[slot].Observe(f.Members, w.now)
	if step := etcd.DecideLearner(f, w.watched[slot]); step.Type == etcd.ResizeRemove {
		w.members[identity] = slices.DeleteFunc(w.members[identity], func(e etcd.Member) bool { return e.ID == step.MemberID })
	}
}

// resize does the next step of the leader's agent for slots that leave.
func (w *lostQuorum) resize(identity, slot string, effects int) {
	f := etcd.ResizeFacts{Slot: slot, Slots: w.documents[slot]}
	for _, e := range w.list(identity, slot) {
		f.Members = append(f.Members, etcd.MemberState{Member: e, Leader: e.Slot == slot})
	}
	step := etcd.DecideResize(f)
	for _, s := range f.Absent(w.slots) {
		w.absent[s] = true
	}
	if step.Type != etcd.ResizeRemove || effects < 2 {
		return
	}
	before, side := w.members[identity], w.majorities()[identity]
	w.members[identity] = slices.DeleteFunc(slices.Clone(before), func(e etcd.Member) bool { return e.ID == step.MemberID })
	after := w.members[identity]
	works := w.listQuorum(identity, slot) != nil
	w.members[identity] = before
	if !works {
		return // etcd refuses it
	}
	w.logs[slot] = append(slices.Clone(w.logs[slot]), modelEntry{term: w.terms[identity], removes: step.MemberID})
	w.replicate(identity, slot, side)
	w.members[identity] = after
	for _, e := range before {
		if e.ID == step.MemberID && w.connected(slot, e.Slot) {
			w.stopRemoved(e.Slot)
		}
	}
}

// endLeft deletes the machine and the volume of a slot that has left, as 'slipway apply' does.
func (w *lostQuorum) endLeft(slot string) {
	if w.hasLeft(slot) && w.absent[slot] && !w.ended[slot] {
		if v := w.volumes[slot]; w.isCurrent(v.identity) && w.isVoter(v.identity, slot) {
			w.Fatalf("the machine of slot %s ends while its member votes: %+v", slot, w.members[v.identity])
		}
		w.lose(slot)
		w.endSecond(slot)
		w.ended[slot] = true
	}
}

// counted returns the slots whose members count, as the agent of a slot knows them: those of its document, and those that have had data
// of the current generation and are not recorded as absent.
func (w *lostQuorum) counted(slot string) []string {
	out := slices.Clone(w.documents[slot])
	for _, s := range w.joinedSlots() {
		if !slices.Contains(out, s) && !w.absent[s] {
			out = append(out, s)
		}
	}
	return out
}

// isNewestRemoved reports whether the newest data is that of a member that was removed, because the quorum was lost before another one
// had its last entries: etcd does not start with it, and an operator has to restore a backup.
func (w *lostQuorum) isNewestRemoved() bool {
	var newest etcd.LogEnd
	removed := false
	for _, slot := range w.slots {
		if !w.hasVotersData(slot) || w.isOut(slot) {
			continue
		}
		if order := logEnd(w.logs[slot]).Compare(newest); order > 0 || order == 0 && removed {
			newest, removed = logEnd(w.logs[slot]), w.isRemoved(slot)
		}
	}
	return removed
}

// isRemoved reports whether a slot has data of a member that was removed.
func (w *lostQuorum) isRemoved(slot string) bool {
	v := w.volumes[slot]
	return v.identity != "" && !slices.ContainsFunc(w.members[v.identity], func(e etcd.Member) bool { return e.ID == v.member })
}

// removals returns the members that a slot's log says were removed.
func (w *lostQuorum) removals(slot string) []uint64 {
	var out []uint64
	for _, e := range w.logs[slot] {
		if e.removes > 0 {
			out = append(out, e.removes)
		}
	}
	return out
}

// joinedSlots returns the slots that have had data of the current generation.
func (w *lostQuorum) joinedSlots() []string {
	if w.newest() == nil {
		return w.slots
	}
	return w.restored[w.number()]
}

// isOut reports whether the data of a slot does not count any more: its member was removed, and that is recorded.
func (w *lostQuorum) isOut(slot string) bool {
	identity := w.volumes[slot].identity
	isMember := slices.ContainsFunc(w.members[identity], func(e etcd.Member) bool { return e.Slot == slot })
	return w.absent[slot] && !isMember
}

// votersWithData returns how many voters have data, and of how many. Slots that have had data count until their absence is recorded,
// except those that have data of a member that was removed.
func (w *lostQuorum) votersWithData() (with, of int) {
	for _, slot := range w.slots {
		isVoter := slices.ContainsFunc(slices.Sorted(maps.Keys(w.members)), func(identity string) bool {
			return w.isCurrent(identity) && w.isVoter(identity, slot)
		})
		isCounted := slices.Contains(w.joinedSlots(), slot) && !w.absent[slot] && !w.isRemoved(slot)
		if !isVoter && !isCounted {
			continue
		}
		of++
		if isVoter && w.hasVotersData(slot) {
			with++
		}
	}
	return with, of
}

// isCurrent reports whether a cluster is that of the current generation.
func (w *lostQuorum) isCurrent(identity string) bool {
	if w.newest() == nil {
		return identity == "first"
	}
	return slices.Contains(w.used[w.number()], identity)
}

// heal ends all faults, and lets the operator create lost volumes again.
func (w *lostQuorum) heal() {
	clear(w.isolated)
	clear(w.storeCut)
	clear(w.zoneDown)
	clear(w.hidden)
	clear(w.apart)
	for _, slot := range w.slots {
		w.endSecond(slot)
	}
	for range 150 {
		w.advance()
		for _, slot := range w.slots {
			if !w.up[slot] && !w.ended[slot] {
				w.launch(slot)
			}
			if !w.exists[slot] && !w.hasLeft(slot) {
				w.create(slot)
			}
			w.memberStep(slot, 10)
			w.memberPromotion(slot, 10)
			w.followSlots(slot, 10)
			w.look(slot, 0, 10)
			w.endLeft(slot)
		}
		if w.isWhole() {
			return
		}
	}
	if w.isHopeless() || w.isNewestRemoved() {
		return
	}
	var reasons []string
	for _, slot := range w.slots {
		a := w.agent(slot)
		reasons = append(reasons, slot+": "+etcd.DecideRecovery(w.recoveryFacts(slot, a, 0)).Reason)
	}
	w.Fatalf("the members do not become whole: %s; generations %+v, restored %v", strings.Join(reasons, "; "), w.generations, w.restored)
}
