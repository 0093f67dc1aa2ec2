// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestReplayedAbsence: the slot left the control plane once and has returned. Who may write to the machine store writes the signed record
// of that time again. Seen to succeed: members set their data aside when their agents started, and were no members any more.
func TestReplayedAbsence(t *testing.T) {
	m := newAttackedMember(t, 3)
	m.agent.EC2 = &fakeEC2{}
	if err := m.writeAbsent(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}

	earlier, err := m.records.Get(t.Context(), node.EtcdAbsentKey("demo", "a"))
	if err != nil {
		t.Fatal(err)
	}

	if err := m.writeAbsent(t.Context(), "a", false); err != nil { // it joins
		t.Fatal(err)
	}

	m.giveData()
	if err := m.recordData(t.Context()); err != nil {
		t.Fatal(err)
	}

	m.write(node.EtcdAbsentKey("demo", "a"), string(earlier.Body))
	if got, err := m.decide(); err != nil || got.Type != etcd.ActionStartExisting {
		t.Errorf("decided %+v, %v", got, err)
	}

	if record, err := m.readAbsent(t.Context(), "a"); err != nil || record.Absent {
		t.Errorf("with the volume of after its return, the slot is absent: %v", err)
	}

	// Also if it has returned with the volume of before, since the apply that made the control plane smaller was killed.
	if err := m.writeAbsent(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}

	for _, others := range [][]etcd.Member{nil, {{ID: 1, Slot: "a", Healthy: true}, {ID: 2, Slot: "b", Healthy: true}}} {
		m.others = func(context.Context, etcd.Facts) []etcd.Member { return others }
		if got, err := m.decide(); err != nil || got.Type != etcd.ActionStartExisting {
			t.Errorf("with the same volume, and the members %+v: decided %+v, %v", others, got, err)
		}
	}
}

// TestReplayedAbsenceInRecovery: a slot is to leave a second time and its member is not removed yet. Who may write to the machine store
// writes the signed records of the first time again, when it had another volume. Seen to succeed: the slot did not count for the
// recovery, so that a backup or older data was restored although its volume may have had newer data.
func TestReplayedAbsenceInRecovery(t *testing.T) {
	r, s, _ := recoveryWithoutEtcd(t)
	api := &fakeEC2{volumes: []types.Volume{slotVolume("vol-d2", "d", "us-east-1a", "", r.member.agent.Now())}}
	r.member.agent.EC2 = api
	slotD := &etcdMember{agent: r.member.agent, store: r.member.store, slot: r.member.slot, volume: "vol-d1"}
	slotD.slot.Name = "d"
	if err := slotD.writeJoinedRecord(t.Context(), joinedRecord{Volume: "vol-d1"}); err != nil {
		t.Fatal(err)
	}

	if err := r.member.writeAbsent(t.Context(), "d", true); err != nil {
		t.Fatal(err)
	}

	known := etcd.Facts{Slot: r.member.slot.Name, Slots: slotNames(r.member.agent), Joined: []string{"d"}}
	slots, err := r.listSlots(t.Context(), known)
	if err != nil {
		t.Fatal(err)
	}

	if slots, err = r.gatherSlots(t.Context(), slots); err != nil {
		t.Fatal(err)
	}

	for _, slot := range slots {
		if slot.Slot == "d" && !slot.Absent {
			return
		}
	}

	t.Errorf("slot d, which has a newer volume, does not count: %+v (%s)", slots, s.URL())
}

// TestAbsentWithOtherVolumes: a slot leaves whose volume has no data of a member: its machine never joined, or its volume was lost and
// the new one is empty. The record says so, also if the slot was absent before it got that volume.
func TestAbsentWithOtherVolumes(t *testing.T) {
	r, _, _ := recoveryWithoutEtcd(t)
	api := &fakeEC2{}
	r.member.agent.EC2 = api
	note := func() {
		t.Helper()
		if err := r.member.newResize().noteAbsent(t.Context(), []string{"d", "e"}); err != nil {
			t.Fatal(err)
		}
	}
	note()
	for _, joined := range []string{"", "vol-d1"} {
		if joined != "" {
			slotD := &etcdMember{agent: r.member.agent, store: r.member.store, slot: r.member.slot, volume: joined}
			slotD.slot.Name = "d"
			if err := slotD.writeJoinedRecord(t.Context(), joinedRecord{Volume: joined}); err != nil {
				t.Fatal(err)
			}
		}

		api.volumes = []types.Volume{slotVolume("vol-d"+joined, "d", "us-east-1a", "", r.member.agent.Now())}
		if absent, err := r.findAbsent(t.Context(), []string{"d"}); err != nil || absent["d"] {
			t.Errorf("joined %q: absent before it was noted with its volume: %v, %v", joined, absent, err)
		}

		note()
		if absent, err := r.findAbsent(t.Context(), []string{"d", "e"}); err != nil || !absent["d"] || !absent["e"] {
			t.Errorf("joined %q: absent %v, %v", joined, absent, err)
		}
	}
}
