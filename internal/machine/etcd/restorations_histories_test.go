// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"testing"

	"pgregory.net/rapid"
)

// happen lets something happen to a slot.
func (m *restorations) happen(slot string) {
	switch rapid.IntRange(0, 12).Draw(m.T, "what") {
	case 0:
		m.request(slot)
	case 1:
		m.volumes[slot] = &modelVolume{name: m.newVolumeName(slot)}
		m.running[slot] = false
	case 2:
		m.running[slot] = false
	case 3:
		m.step(slot, false, 10)
	case 4:
		m.happenTwice(slot)
	case 5, 6:
		m.whileSecond(slot, func() { m.step(slot, true, rapid.IntRange(0, 4).Draw(m.T, "second's effects")) })
	default:
		m.step(slot, true, rapid.IntRange(0, 4).Draw(m.T, "effects"))
	}
	m.checkMembersRunOnce()
}

// TestRestorations plays random histories, also with two machines of a slot. There are never two clusters of one generation, no member
// runs twice, nobody joins an older one, and when faults stop, one more restoration at most makes all members whole.
func TestRestorations(t *testing.T) {
	histories, twice := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 100 {
			histories++
			m := newRestorations(t)
			for range rapid.IntRange(1, 25).Draw(t, "steps") {
				m.happen(m.slots[rapid.IntRange(0, len(m.slots)-1).Draw(t, "slot")])
			}
			if m.seconds > 0 {
				twice++
			}
			m.endSeconds()
			if m.newest() == nil {
				m.request(m.slots[0])
			}
			if m.settle() {
				continue
			}
			m.request(m.slots[0]) // the volume of the slot that restored was lost before others had joined it
			if !m.settle() {
				t.Fatalf("the members do not become whole: %+v", m.volumes)
			}
		}
	})
	t.Logf("COUNT %d histories of restorations, %d with two machines of a slot", histories, twice)
}
