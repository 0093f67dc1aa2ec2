// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// twoMachines are the second machines of slots: Auto Scaling has launched one while the former one works still. The model calls the machine
// that has the volume by its slot. The other one has none and waits, or it had it before it was detached by force: then it acts
// from what it has in memory, and nothing that it writes to the volume is stored. Others that look for the slot at its address find nobody,
// as if the machine that has the volume were isolated.
type twoMachines struct {
	// others are the second machines by slot.
	others map[string]*slotMachine
	// names are those of the machines that have the volume, by slot.
	names map[string]string
	// stale is set for a machine that acts from memory, and hangs if its device does not fail: its writes do not end.
	stale, hangs map[string]bool
	// attached are for the last ticks the names of the machines to which EC2 has attached volumes, by volume.
	attached []map[string]string
	// acting is the slot whose second machine acts at the moment.
	acting string
	// moves counts the volumes that second machines got.
	moves int
}

// slotMachine is everything that two machines of a slot do not share.
type slotMachine struct {
	name                      string
	up, running, exists       bool
	isolated, apart, storeCut bool
	skew                      time.Duration
	volume                    *modelVolume
	volumeID                  string
	log                       []modelEntry
	agent                     *modelAgent
	document                  []string
	led                       uint64
	stale, hangs              bool
	// decided is set while a decision about the member is on its way that was taken before the volume was detached.
	decided bool
}

func newTwoMachines() twoMachines {
	return twoMachines{
		others: map[string]*slotMachine{},
		names:  map[string]string{},
		stale:  map[string]bool{},
		hangs:  map[string]bool{},
	}
}

// launch starts a new machine of a slot.
func (w *lostQuorum) launch(slot string) {
	w.up[slot] = true
	w.names[slot] = w.newName()
}

func (w *lostQuorum) newName() string {
	w.ids++
	return fmt.Sprintf("i-%d", w.ids)
}

// machine returns the machine of a slot.
func (w *lostQuorum) machine(slot string) slotMachine {
	return slotMachine{
		name: w.names[slot], up: w.up[slot], running: w.running[slot], exists: w.exists[slot],
		isolated: w.isolated[slot], apart: w.apart[slot], storeCut: w.storeCut[slot], skew: w.skew[slot],
		volume: w.volumes[slot], volumeID: w.volumeID[slot], log: w.logs[slot], agent: w.agents[slot],
		document: w.documents[slot], led: w.ledIn[slot], stale: w.stale[slot], hangs: w.hangs[slot],
	}
}

// setMachine makes m the machine of a slot.
func (w *lostQuorum) setMachine(slot string, m slotMachine) {
	w.names[slot], w.up[slot], w.running[slot], w.exists[slot] = m.name, m.up, m.running, m.exists
	w.isolated[slot], w.apart[slot], w.storeCut[slot], w.skew[slot] = m.isolated, m.apart, m.storeCut, m.skew
	w.volumes[slot], w.volumeID[slot], w.logs[slot] = m.volume, m.volumeID, m.log
	w.documents[slot], w.stale[slot], w.hangs[slot] = m.document, m.stale, m.hangs
	w.agents[slot] = m.agent
	delete(w.ledIn, slot)
	if m.led > 0 {
		w.ledIn[slot] = m.led
	}
}

// exchange lets the model call the second machine of a slot by the slot, and the other one the second.
func (w *lostQuorum) exchange(slot string) {
	first, second := w.machine(slot), w.others[slot]
	w.setMachine(slot, *second)
	w.others[slot] = &first
}

// asSecond lets the second machine of a slot do something.
func (w *lostQuorum) asSecond(slot string, do func()) {
	w.exchange(slot)
	w.acting = slot
	do()
	w.acting = ""
	w.exchange(slot)
}

// showFirst shows the machines that have the volumes, until the function that it returns is called: the invariants are about those.
func (w *lostQuorum) showFirst() func() {
	slot := w.acting
	if slot == "" {
		return func() {}
	}
	w.exchange(slot)
	w.acting = ""
	return func() {
		w.exchange(slot)
		w.acting = slot
	}
}

// noteAttachments notes to which machines volumes are attached.
func (w *lostQuorum) noteAttachments() {
	now := map[string]string{}
	for _, slot := range w.slots {
		if w.exists[slot] && w.up[slot] {
			now[w.volumeID[slot]] = w.names[slot]
		}
	}
	w.attached = append(w.attached, now)
}

// faultOfTwo launches a second machine of a slot while the first works, moves the volume between them, or ends one of them.
func (w *lostQuorum) faultOfTwo(slot string) {
	if w.zoneDown[slot] || w.hasLeft(slot) || w.ended[slot] {
		return
	}
	if w.others[slot] == nil {
		w.seconds++
		w.others[slot] = &slotMachine{
			name:     w.newName(),
			up:       true,
			volume:   &modelVolume{},
			document: w.published,
			skew:     time.Duration(rapid.IntRange(-30, 30).Draw(w.T, "second's skew")) * time.Second,
		}
		return
	}
	switch rapid.IntRange(0, 5).Draw(w.T, "two") {
	case 0:
		w.endSecond(slot)
	case 1:
		w.stop(slot)
		w.moveVolume(slot, false)
	case 2:
		w.moveVolume(slot, false)
	default:
		w.moveVolume(slot, true)
	}
}

// endSecond terminates the machine of a slot that does not have the volume.
func (w *lostQuorum) endSecond(slot string) { delete(w.others, slot) }

// moveVolume detaches the volume of a slot and attaches it to the second machine. Without force the first one stops etcd and unmounts it.
func (w *lostQuorum) moveVolume(slot string, isForced bool) {
	first, second := w.machine(slot), w.others[slot]
	if second == nil || !first.exists {
		return
	}
	w.moves++
	next := *second
	next.exists, next.volume, next.volumeID, next.log = true, first.volume, first.volumeID, first.log
	next.stale, next.decided = false, false
	w.setMachine(slot, next)
	if !first.up {
		w.endSecond(slot)
		return
	}
	first.running, first.led, first.stale = false, 0, isForced
	if isForced {
		seen := *first.volume
		first.volume, first.decided, first.hangs = &seen, true, rapid.Bool().Draw(w.T, "hangs")
	} else {
		first.exists, first.volume, first.volumeID, first.log = false, &modelVolume{}, "", nil
	}
	w.others[slot] = &first
}

// actAsSecond lets the second machine of a slot act, if it has lost the volume: it reports and decides about a recovery, and does
// what it had decided about its member before.
func (w *lostQuorum) actAsSecond(slot string) {
	if w.others[slot] != nil && rapid.IntRange(0, 5).Draw(w.T, "calm of two") == 0 {
		w.faultOfTwo(slot)
	}
	second := w.others[slot]
	if second == nil || !second.stale || rapid.IntRange(0, 3).Draw(w.T, "idle second") == 0 {
		return
	}
	decided := second.decided && rapid.Bool().Draw(w.T, "decided")
	second.decided = false
	w.asSecond(slot, func() {
		if decided && w.mayStep(slot) {
			w.step(slot, !w.storeCut[slot], rapid.IntRange(0, 4).Draw(w.T, "second's effects"))
			w.running[slot] = false
			if w.volumes[slot].identity == "" {
				w.logs[slot] = nil
			}
		}
		w.look(slot, rapid.IntRange(0, 2).Draw(w.T, "second is late"), rapid.IntRange(0, 3).Draw(w.T, "second is killed"))
	})
	for _, s := range w.slots { // whose members it has removed
		w.stopRemoved(s)
	}
}

// setRemovedAside lets a machine set its data aside if its member was removed and its slot has none, as the agent does at its start.
func (w *lostQuorum) setRemovedAside(slot string) {
	v := w.volumes[slot]
	if v.identity == "" || w.isMember(slot) || w.hasLeft(slot) || w.storeCut[slot] {
		return
	}
	f, _ := w.facts(slot, true)
	if !etcd.WasRemoved(f.Members, slot) {
		return
	}
	*v = modelVolume{name: v.name}
	w.logs[slot] = nil
}
