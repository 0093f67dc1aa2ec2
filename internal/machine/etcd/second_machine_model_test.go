// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"fmt"

	"pgregory.net/rapid"
)

// secondMachine is another machine of a slot that runs at the same time, because Auto Scaling or the operator took the first one for
// lost, and has another volume. The others reach the first one.
type secondMachine struct {
	volume  *modelVolume
	running bool
}

// swap makes the second machine of a slot the first, and the first the second: the model calls what is the machine of a slot by the slot.
func (m *restorations) swap(slot string) {
	other := m.second[slot]
	if other == nil {
		return
	}
	m.second[slot] = &secondMachine{volume: m.volumes[slot], running: m.running[slot]}
	m.volumes[slot], m.running[slot] = other.volume, other.running
}

// whileSecond lets the second machine of a slot do something. It sees the members of the other slots, as the first one does.
func (m *restorations) whileSecond(slot string, do func()) {
	if m.second[slot] == nil {
		return
	}
	m.swap(slot)
	do()
	m.swap(slot)
}

// happenTwice launches a second machine of a slot with a new volume while the first runs, ends one of the two, or lets the others find
// the second by its address.
func (m *restorations) happenTwice(slot string) {
	switch {
	case m.second[slot] == nil:
		m.second[slot] = &secondMachine{volume: &modelVolume{name: m.newVolumeName(slot)}}
		m.seconds++
	case rapid.IntRange(0, 2).Draw(m.T, "end") > 0:
		m.swap(slot)
	default:
		if rapid.Bool().Draw(m.T, "first") {
			m.swap(slot)
		}
		delete(m.second, slot)
	}
}

// newVolumeName returns the name of a volume that is created for a slot.
func (m *restorations) newVolumeName(slot string) string {
	m.next++
	return fmt.Sprintf("vol-%s-%d", slot, m.next)
}

// volumeName returns the name of the volume of a slot's machine.
func (m *restorations) volumeName(slot string) string { return m.volumes[slot].name }

// checkMembersRunOnce fails if both machines of a slot run as the same member. Each would confirm to the leader what the other does
// not have.
func (m *restorations) checkMembersRunOnce() {
	for _, slot := range m.slots {
		v, other := m.volumes[slot], m.second[slot]
		if other == nil || !other.running || !m.alive(v.identity, slot) {
			continue
		}
		if o := other.volume; o.identity == v.identity && o.member == v.member {
			m.Fatalf("two machines of slot %s run as member %d of %s, on volumes %q and %q", slot, v.member, v.identity, v.name, o.name)
		}
	}
}

// endSeconds ends one machine of each slot that has two, with its volume: the one that is no member of a cluster.
func (m *restorations) endSeconds() {
	for _, slot := range m.slots {
		if m.second[slot] == nil {
			continue
		}
		first := m.standing(slot)
		m.swap(slot)
		if first >= m.standing(slot) {
			m.swap(slot)
		}
		delete(m.second, slot)
	}
}

// standing says which one of two machines of a slot the operator keeps: the greater one.
func (m *restorations) standing(slot string) int {
	switch {
	case m.isMember(slot):
		return 2
	case m.volumes[slot].identity == "":
		return 1
	default:
		return 0 // it has data of a member that was removed, or of an earlier generation
	}
}
