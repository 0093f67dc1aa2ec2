// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"testing"
	"time"

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
