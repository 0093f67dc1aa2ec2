// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// maintained is a model of a cluster whose agents maintain it, while databases grow, become fragmented and damaged, members
// stop, clocks differ and agents see the past.
type maintained struct {
	*rapid.T
	now     int64
	slots   []string
	members map[string]*maintainedMember
	alarms  []etcd.Alarm
	leader  string
	nextID  uint64
	damages int
	rejoins int
	checked int64              // when etcd compared the members last
	past    []etcd.MemberState // what agents with delayed views see
}

type maintainedMember struct {
	id                uint64
	db, used          int64 // in MiB; the quota is 1000
	wrong, down       bool
	out               bool // it has no data and is no member
	busyUntil         int64
	defragmentedAt    int64
	compactedAt, skew int64
}

func newMaintained(t *rapid.T) *maintained {
	m := &maintained{T: t, now: 1_000_000, members: map[string]*maintainedMember{}, leader: "a"}
	m.slots = []string{"a", "b", "c", "d", "e"}[:rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "size")]
	for _, slot := range m.slots {
		m.nextID++
		m.members[slot] = &maintainedMember{id: m.nextID, db: 50, used: 40, skew: rapid.Int64Range(-14, 14).Draw(t, "skew")}
	}
	return m
}

// up reports whether a member answers.
func (m *maintained) up(slot string) bool {
	v := m.members[slot]
	return !v.down && !v.out && v.busyUntil <= m.now
}

func (m *maintained) countUp() int {
	n := 0
	for _, slot := range m.slots {
		if m.up(slot) {
			n++
		}
	}
	return n
}

func (m *maintained) view() []etcd.MemberState {
	var out []etcd.MemberState
	for _, slot := range m.slots {
		v := m.members[slot]
		if v.out {
			continue
		}
		hash := etcd.ContentHash{Known: m.up(slot), Hash: 1}
		if v.wrong {
			hash.Hash = 2
		}
		state := etcd.MemberState{
			Member: etcd.Member{ID: v.id, Slot: slot, Name: "etcd-" + slot, Healthy: m.up(slot)}, Leader: slot == m.leader,
			DBSize: v.db * mebibyte, InUse: v.used * mebibyte, Quota: 1000 * mebibyte, Hash: hash,
		}
		if v.down {
			state.DBSize, state.InUse, state.Quota = 0, 0, 0
		}
		out = append(out, state)
	}
	return out
}

// look lets the agent of a slot decide and act.
func (m *maintained) look(slot string, members []etcd.MemberState) {
	v := m.members[slot]
	if m.countUp()*2 <= len(m.view()) {
		return // an agent needs a linearizable read
	}
	if v.out {
		m.rejoin(slot, members)
	}
	if !m.up(slot) {
		return
	}
	step := etcd.DecideMaintenance(etcd.MaintenanceFacts{
		Now: time.Unix(m.now+v.skew, 0), Slot: slot, Slots: m.slots, Members: members, Alarms: m.alarms,
		FreeBytes: 10 << 30, OldRevision: m.now - 60, CompactedAt: time.Unix(v.compactedAt, 0), DefragmentedAt: time.Unix(v.defragmentedAt, 0),
	})
	switch step.Type {
	case etcd.MaintainDefragment:
		for _, other := range m.slots {
			if m.members[other].busyUntil > m.now {
				m.Fatalf("%s and %s are defragmented at the same time", slot, other)
			}
		}
		v.db, v.busyUntil, v.defragmentedAt = v.used, m.now+rapid.Int64Range(1, 10).Draw(m.T, "duration"), m.now+v.skew
		m.elect()
	case etcd.MaintainCompact:
		v.compactedAt = m.now + v.skew
		for _, each := range m.members {
			each.used = min(each.used, 300)
		}
	case etcd.MaintainDisarm:
		m.alarms = slices.DeleteFunc(m.alarms, func(a etcd.Alarm) bool { return slices.Contains(step.Alarms, a) })
		m.raise()
	case etcd.MaintainStepAside:
		if !v.wrong {
			m.Fatalf("%s, whose data is right, discards it", slot)
		}
		v.out, v.wrong = true, false
		m.elect()
	case etcd.MaintainNothing, etcd.MaintainBlocked:
	}
}

// rejoin lets a member without data join, if its agent finds that the others have the same data. It copies the leader's.
func (m *maintained) rejoin(slot string, members []etcd.MemberState) {
	got := etcd.CompareMembers(etcd.Survey{Members: members, Alarms: m.alarms})
	if !got.Equal {
		return
	}
	if m.members[m.leader].wrong {
		m.Fatalf("%s copies the wrong data of %s", slot, m.leader)
	}
	m.nextID++
	*m.members[slot] = maintainedMember{id: m.nextID, db: 50, used: 40, skew: m.members[slot].skew}
	m.rejoins++
}

// elect moves the leadership to a member that answers.
func (m *maintained) elect() {
	var can []string
	for _, slot := range m.slots {
		if m.up(slot) {
			can = append(can, slot)
		}
	}
	if len(can) > 0 && !slices.Contains(can, m.leader) {
		m.leader = rapid.SampledFrom(can).Draw(m.T, "leader")
	}
}

// raise raises the alarms that etcd would raise.
func (m *maintained) raise() {
	add := func(a etcd.Alarm) {
		if !slices.Contains(m.alarms, a) {
			m.alarms = append(m.alarms, a)
		}
	}
	for _, slot := range m.slots {
		v := m.members[slot]
		if v.db >= 1000 {
			add(etcd.Alarm{MemberID: v.id, Type: etcd.AlarmNoSpace})
		}
	}
	if m.now-m.checked < 300 { // kube-apiserver compacts every 5 minutes
		return
	}
	m.checked = m.now
	for _, slot := range m.slots {
		blamed := slot // if the leader's data is wrong, the alarm is about another one
		if slot == m.leader {
			blamed = m.slots[(slices.Index(m.slots, slot)+1)%len(m.slots)]
		}
		if m.members[slot].wrong && m.up(slot) {
			add(etcd.Alarm{MemberID: m.members[blamed].id, Type: etcd.AlarmCorrupt})
		}
	}
}

// fault changes something.
func (m *maintained) fault() {
	slot := rapid.SampledFrom(m.slots).Draw(m.T, "slot")
	v := m.members[slot]
	lost := 0
	for _, each := range m.members {
		if each.wrong || each.out {
			lost++
		}
	}
	spare := !v.wrong && !v.out && (lost+1)*2 < len(m.slots)
	switch rapid.IntRange(0, 6).Draw(m.T, "fault") {
	case 0:
		v.down = !v.down
	case 1:
		v.db = min(1000, v.db+rapid.Int64Range(0, 900).Draw(m.T, "growth"))
	case 2:
		v.used = min(v.db, v.used+rapid.Int64Range(0, 900).Draw(m.T, "use"))
	case 3:
		v.used = min(v.used, 40)
	case 4:
		if spare {
			v.wrong = true
			m.damages++
		}
	case 5:
		m.past = m.view()
	case 6:
		v.out = v.out || spare // its volume is lost
	}
	m.raise()
	m.elect()
}

// settled says what is not in order.
func (m *maintained) settled() string {
	if len(m.alarms) > 0 {
		return fmt.Sprint("alarms: ", m.alarms)
	}
	for _, slot := range m.slots {
		if v := m.members[slot]; v.wrong || v.out || len(m.slots) > 1 && v.db >= 200 && v.used*2 < v.db {
			return fmt.Sprintf("member %s: %+v", slot, *v)
		}
	}
	return ""
}

// TestMaintenance plays random histories. Two members are never defragmented at the same time, a member with the data of the
// majority never discards it, and when faults stop, databases are small, equal and without alarms.
func TestMaintenance(t *testing.T) {
	histories, damages, rejoins := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 10 {
			histories++
			m := newMaintained(t)
			for range rapid.IntRange(1, 30).Draw(t, "steps") {
				m.now += 10
				if rapid.IntRange(0, 2).Draw(t, "fault?") == 0 {
					m.fault()
				}
				for _, slot := range m.slots {
					members := m.view()
					stale := len(m.past) > 0 && rapid.IntRange(0, 5).Draw(t, "stale") == 0
					if stale && slices.EqualFunc(m.past, members, func(a, b etcd.MemberState) bool { return a.ID == b.ID && a.Hash == b.Hash }) {
						members = m.past
					}
					m.look(slot, members)
				}
			}
			damages += m.damages
			rejoins += m.rejoins
			for _, v := range m.members {
				v.down = false
				v.used = min(v.used, 600)
			}
			for range 3 * 360 { // three hours
				if m.now += 10; m.settled() == "" {
					break
				}
				m.raise()
				m.elect()
				for _, slot := range m.slots {
					m.look(slot, m.view())
				}
			}
			if problem := m.settled(); problem != "" {
				t.Fatalf("not in order: %s", problem)
			}
		}
	})
	t.Logf("COUNT %d histories of maintenance with %d damaged members, %d joined again before faults stopped", histories, damages, rejoins)
}
