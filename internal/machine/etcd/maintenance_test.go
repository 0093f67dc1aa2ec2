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

const mebibyte = 1 << 20

// threeMembers returns the facts of slot a in its turn: three healthy members that need nothing. Slot c has the leader.
func threeMembers(change func(*etcd.MaintenanceFacts)) etcd.MaintenanceFacts {
	f := etcd.MaintenanceFacts{
		Now: time.Unix(180_000, 0), Slot: "a", Slots: []string{"a", "b", "c"}, FreeBytes: 10 << 30, OldRevision: 100,
	}
	for i, slot := range f.Slots {
		f.Members = append(f.Members, etcd.MemberState{
			Member: etcd.Member{ID: uint64(i + 1), Slot: slot, Name: "etcd-" + slot, Healthy: true}, Leader: slot == "c",
			DBSize: 50 * mebibyte, InUse: 40 * mebibyte, Quota: 1000 * mebibyte,
			Hash: etcd.ContentHash{Known: true, Hash: 1, CompactRevision: 5},
		})
	}
	change(&f)
	return f
}

func TestDecideMaintenance(t *testing.T) {
	corrupt := []etcd.Alarm{{MemberID: 1, Type: etcd.AlarmCorrupt}}
	full := []etcd.Alarm{{MemberID: 1, Type: etcd.AlarmNoSpace}}
	fragmented := func(f *etcd.MaintenanceFacts, at ...int) {
		for _, i := range at {
			f.Members[i].DBSize, f.Members[i].InUse = 200*mebibyte, 50*mebibyte
		}
	}
	five := func(f *etcd.MaintenanceFacts) {
		f.Slots = []string{"a", "b", "c", "d", "e"}
		for i, slot := range f.Slots[3:] {
			m := f.Members[1]
			m.ID, m.Slot, m.Name = uint64(i+4), slot, "etcd-"+slot
			f.Members = append(f.Members, m)
		}
	}
	ownLeader := func(f *etcd.MaintenanceFacts) { f.Members[0].Leader, f.Members[2].Leader = true, false }
	for name, c := range map[string]struct {
		change func(*etcd.MaintenanceFacts)
		want   etcd.MaintenanceType
	}{
		"nothing to do":         {func(*etcd.MaintenanceFacts) {}, etcd.MaintainNothing},
		"no member of the slot": {func(f *etcd.MaintenanceFacts) { f.Slot = "x" }, etcd.MaintainNothing},
		"fragmented":            {func(f *etcd.MaintenanceFacts) { fragmented(f, 0) }, etcd.MaintainDefragment},
		"a small database":      {func(f *etcd.MaintenanceFacts) { f.Members[0].InUse = mebibyte }, etcd.MaintainNothing},
		"less than 45%":         {func(f *etcd.MaintenanceFacts) { fragmented(f, 0); f.Members[0].InUse = 111 * mebibyte }, etcd.MaintainNothing},
		"less than 45%, almost full": {func(f *etcd.MaintenanceFacts) {
			f.Members[0].DBSize, f.Members[0].InUse = 800*mebibyte, 700*mebibyte
		}, etcd.MaintainDefragment},
		"another one's turn":      {func(f *etcd.MaintenanceFacts) { fragmented(f, 0); f.Now = f.Now.Add(time.Minute) }, etcd.MaintainNothing},
		"the turn is almost over": {func(f *etcd.MaintenanceFacts) { fragmented(f, 0); f.Now = f.Now.Add(20 * time.Second) }, etcd.MaintainNothing},
		"another one is not healthy": {func(f *etcd.MaintenanceFacts) {
			fragmented(f, 0)
			f.Members[1].Healthy = false
		}, etcd.MaintainNothing},
		"another one is missing": {func(f *etcd.MaintenanceFacts) { fragmented(f, 0); f.Members = f.Members[:2] }, etcd.MaintainNothing},
		"a learner":              {func(f *etcd.MaintenanceFacts) { fragmented(f, 0); f.Members[1].Learner = true }, etcd.MaintainNothing},
		"no space for a copy":    {func(f *etcd.MaintenanceFacts) { fragmented(f, 0); f.FreeBytes = 300 * mebibyte }, etcd.MaintainNothing},
		"it was a moment ago": {func(f *etcd.MaintenanceFacts) {
			fragmented(f, 0)
			f.DefragmentedAt = f.Now.Add(-10 * time.Minute)
		}, etcd.MaintainNothing},
		"it was a moment ago, and it is full": {func(f *etcd.MaintenanceFacts) {
			fragmented(f, 0)
			f.Alarms, f.DefragmentedAt = full, f.Now.Add(-time.Minute)
		}, etcd.MaintainDefragment},
		"the leader is last":        {func(f *etcd.MaintenanceFacts) { fragmented(f, 0, 1); ownLeader(f) }, etcd.MaintainNothing},
		"the leader when it is due": {func(f *etcd.MaintenanceFacts) { fragmented(f, 0); ownLeader(f) }, etcd.MaintainDefragment},
		"the only member": {func(f *etcd.MaintenanceFacts) {
			fragmented(f, 0)
			f.Slots, f.Members = f.Slots[:1], f.Members[:1]
		}, etcd.MaintainNothing},
		"the only member, almost full": {func(f *etcd.MaintenanceFacts) {
			f.Slots, f.Members = f.Slots[:1], f.Members[:1]
			f.Members[0].DBSize = 800 * mebibyte
		}, etcd.MaintainDefragment},
		"full, and another one is not healthy": {func(f *etcd.MaintenanceFacts) {
			f.Alarms = full
			f.Members[0].DBSize, f.Members[1].Healthy = 1000*mebibyte, false
		}, etcd.MaintainNothing},

		"almost full, and one of five is down": {func(f *etcd.MaintenanceFacts) {
			five(f)
			f.Members[0].DBSize, f.Members[1].Healthy, f.Members[1].Quota = 800*mebibyte, false, 0
		}, etcd.MaintainDefragment},
		"almost full, and two of five are down": {func(f *etcd.MaintenanceFacts) {
			five(f)
			f.Members[0].DBSize, f.Members[1].Healthy, f.Members[1].Quota = 800*mebibyte, false, 0
			f.Members[2].Healthy, f.Members[2].Quota = false, 0
		}, etcd.MaintainNothing},
		"almost full, and one of five is defragmented": {func(f *etcd.MaintenanceFacts) {
			five(f)
			f.Members[0].DBSize, f.Members[1].Healthy = 800*mebibyte, false
		}, etcd.MaintainNothing},
		"almost full, and one of three is down": {func(f *etcd.MaintenanceFacts) {
			f.Members[0].DBSize, f.Members[1].Healthy, f.Members[1].Quota = 800*mebibyte, false, 0
		}, etcd.MaintainNothing},
		"as good as full, and one of three is down": {func(f *etcd.MaintenanceFacts) {
			f.Members[0].DBSize, f.Members[1].Healthy, f.Members[1].Quota = 901*mebibyte, false, 0
		}, etcd.MaintainDefragment},
		"as good as full, one of three is down, and the leader is last": {func(f *etcd.MaintenanceFacts) {
			ownLeader(f)
			f.Members[0].DBSize, f.Members[2].DBSize = 901*mebibyte, 901*mebibyte
			f.Members[1].Healthy, f.Members[1].Quota = false, 0
		}, etcd.MaintainNothing},
		"almost full, and one of five joins": {func(f *etcd.MaintenanceFacts) {
			five(f)
			f.Members[0].DBSize, f.Members[1].Learner = 800*mebibyte, true
		}, etcd.MaintainDefragment},
		"almost full, and a member copies the data of this one": {func(f *etcd.MaintenanceFacts) {
			five(f)
			ownLeader(f)
			f.Members[0].DBSize, f.Members[1].Learner = 800*mebibyte, true
		}, etcd.MaintainNothing},

		"full of history":      {func(f *etcd.MaintenanceFacts) { ownLeader(f); f.Members[1].InUse = 900 * mebibyte }, etcd.MaintainCompact},
		"full: not the leader": {func(f *etcd.MaintenanceFacts) { f.Members[1].InUse = 900 * mebibyte }, etcd.MaintainNothing},
		"full: compacted already": {func(f *etcd.MaintenanceFacts) {
			ownLeader(f)
			f.Members[1].InUse = 900 * mebibyte
			f.CompactedAt = f.Now.Add(-time.Minute)
		}, etcd.MaintainNothing},
		"full: revision of before unknown": {func(f *etcd.MaintenanceFacts) { ownLeader(f); f.Members[1].InUse = 900 * mebibyte; f.OldRevision = 0 }, etcd.MaintainNothing},
		"space regained":                   {func(f *etcd.MaintenanceFacts) { ownLeader(f); f.Alarms = full }, etcd.MaintainDisarm},
		"space regained: not the leader":   {func(f *etcd.MaintenanceFacts) { f.Alarms = full }, etcd.MaintainNothing},
		"one is still full": {func(f *etcd.MaintenanceFacts) {
			ownLeader(f)
			f.Alarms, f.CompactedAt, f.Members[1].DBSize = full, f.Now, 950*mebibyte
		}, etcd.MaintainNothing},
		"one is down": {func(f *etcd.MaintenanceFacts) {
			ownLeader(f)
			f.Alarms, f.CompactedAt = full, f.Now
			f.Members[1].Healthy, f.Members[1].Quota, f.Members[1].DBSize = false, 0, 0
		}, etcd.MaintainDisarm},
		"no majority has space": {func(f *etcd.MaintenanceFacts) {
			ownLeader(f)
			f.Alarms, f.CompactedAt = full, f.Now
			f.Members[1].Healthy, f.Members[2].Healthy = false, false
		}, etcd.MaintainNothing},
		"full, and another one is defragmented": {func(f *etcd.MaintenanceFacts) {
			fragmented(f, 0)
			f.Alarms, f.Members[1].Healthy = full, false
		}, etcd.MaintainNothing},
		"full, and another one is down": {func(f *etcd.MaintenanceFacts) {
			fragmented(f, 0)
			f.Alarms, f.Members[1].Healthy, f.Members[1].Quota = full, false, 0
		}, etcd.MaintainDefragment},
		"own data is wrong": {func(f *etcd.MaintenanceFacts) { f.Alarms, f.Members[0].Hash.Hash = corrupt, 2 }, etcd.MaintainStepAside},
		"own data is wrong, the alarm blames another one": {func(f *etcd.MaintenanceFacts) {
			f.Alarms, f.Members[0].Hash.Hash = []etcd.Alarm{{MemberID: 2, Type: etcd.AlarmCorrupt}}, 2
		}, etcd.MaintainStepAside},
		"the alarm blames this one, whose data is right": {func(f *etcd.MaintenanceFacts) { f.Alarms, f.Members[1].Hash.Hash = corrupt, 2 }, etcd.MaintainNothing},
		"another one does not answer": {func(f *etcd.MaintenanceFacts) {
			f.Alarms, f.Members[0].Hash.Hash, f.Members[1].Hash.Known = corrupt, 2, false
		}, etcd.MaintainNothing},
		"another one is not healthy, and the data is wrong": {func(f *etcd.MaintenanceFacts) {
			f.Alarms, f.Members[0].Hash.Hash, f.Members[1].Healthy = corrupt, 2, false
		}, etcd.MaintainNothing},
		"all differ": {func(f *etcd.MaintenanceFacts) {
			f.Alarms, f.Members[0].Hash.Hash, f.Members[1].Hash.Hash = corrupt, 2, 3
		}, etcd.MaintainNothing},
		"other history": {func(f *etcd.MaintenanceFacts) {
			f.Alarms, f.Members[0].Hash = corrupt, etcd.ContentHash{Known: true, Hash: 2, CompactRevision: 9}
		}, etcd.MaintainNothing},
		"replaced, the alarm remains": {func(f *etcd.MaintenanceFacts) {
			ownLeader(f)
			f.Alarms = []etcd.Alarm{{MemberID: 99, Type: etcd.AlarmCorrupt}}
			f.Members = f.Members[:2]
		}, etcd.MaintainDisarm},
		"own data is wrong, the volume is full": {func(f *etcd.MaintenanceFacts) {
			f.Alarms, f.Members[0].Hash.Hash, f.FreeBytes = corrupt, 2, 300*mebibyte
		}, etcd.MaintainBlocked},
		"own data is wrong, earlier data is replaced": {func(f *etcd.MaintenanceFacts) {
			f.Alarms, f.Members[0].Hash.Hash, f.FreeBytes, f.AsideBytes = corrupt, 2, 300*mebibyte, 50*mebibyte
		}, etcd.MaintainStepAside},
		"the member that the alarm is about does not start": {func(f *etcd.MaintenanceFacts) {
			ownLeader(f)
			f.Alarms = []etcd.Alarm{{MemberID: 3, Type: etcd.AlarmCorrupt}}
			f.Members[2].Healthy, f.Members[2].Quota, f.Members[2].Hash.Known = false, 0, false
		}, etcd.MaintainDisarm},
		"the member that the alarm is about does not answer in time": {func(f *etcd.MaintenanceFacts) {
			ownLeader(f)
			f.Alarms = []etcd.Alarm{{MemberID: 3, Type: etcd.AlarmCorrupt}}
			f.Members[2].Hash.Known = false
		}, etcd.MaintainNothing},
		"one does not start, the others differ": {func(f *etcd.MaintenanceFacts) {
			ownLeader(f)
			f.Alarms, f.Members[1].Hash.Hash = corrupt, 2
			f.Members[2].Healthy, f.Members[2].Quota, f.Members[2].Hash.Known = false, 0, false
		}, etcd.MaintainNothing},
		"the wrong one was removed, the alarm blames another one": {func(f *etcd.MaintenanceFacts) {
			ownLeader(f)
			f.Alarms, f.Members = corrupt, f.Members[:2]
		}, etcd.MaintainDisarm},
		"all are equal again": {func(f *etcd.MaintenanceFacts) { ownLeader(f); f.Alarms = corrupt }, etcd.MaintainDisarm},
		"nobody knows whom the alarm is about": {func(f *etcd.MaintenanceFacts) {
			ownLeader(f)
			f.Alarms = []etcd.Alarm{{Type: etcd.AlarmCorrupt}}
			f.Members[1].Hash.Hash = 2
		}, etcd.MaintainNothing},
	} {
		if got := etcd.DecideMaintenance(threeMembers(c.change)); got.Type != c.want || got.Reason == "" {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

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
