// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestFormerMachineDoesNotReport: the volume was detached from this machine by force, and another machine of the slot has it. What this one
// has in memory may be old, and its report would replace that of the other one.
func TestFormerMachineDoesNotReport(t *testing.T) {
	r, s, _ := recoveryWithoutEtcd(t)
	a := r.member.agent
	a.EC2 = &fakeEC2{volumes: []types.Volume{slotVolume("vol-a", "a", "z", "i-other", time.Now())}}

	err := r.run(t.Context())
	if !errors.As(err, new(notReadyError)) || !strings.Contains(err.Error(), "attached to another machine") {
		t.Errorf("it decides about a recovery: %v", err)
	}

	if _, err := s.Get(t.Context(), node.EtcdQuorumReportKey("demo", "a")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("it reports: %v", err)
	}
}

// TestReportsOfFormerMachine: the report of a machine counts as long as no other one has the volume.
func TestReportsOfFormerMachine(t *testing.T) {
	r, s, _ := recoveryWithoutEtcd(t)
	r.memory.asked = true
	r.memory.own.Slot = "a"
	r.memory.own.Machine = r.member.agent.instance.ID
	r.memory.newSession()
	count := 0
	key := node.EtcdQuorumReportKey("demo", "b")
	gather := func(attached string) *etcd.QuorumReport {
		t.Helper()
		count++
		body, err := r.member.agent.signRecord(key, etcd.QuorumReport{
			Slot:    "b",
			Machine: "i-b",
			Volume:  "vol-b",
			Count:   count,
			Session: "of b",
			Heard:   map[string]string{"a": r.memory.own.Session},
		})
		if err != nil {
			t.Fatal(err)
		}

		if _, err := s.Put(t.Context(), key, body); err != nil {
			t.Fatal(err)
		}

		r.member.agent.EC2 = &fakeEC2{volumes: []types.Volume{slotVolume("vol-b", "b", "z", attached, time.Now())}}
		slots, err := r.gatherSlots(t.Context(), []etcd.SlotState{{Slot: "b"}})
		if err != nil {
			t.Fatal(err)
		}

		return slots[0].Report
	}

	_ = gather("i-b") // the first one may be old
	if gather("i-b") == nil || gather("") == nil {
		t.Error("the report of the machine that has the volume does not count")
	}

	if got := gather("i-other"); got != nil {
		t.Errorf("the report of the former machine counts: %+v", got)
	}
}

// TestNewSessionAfterAnotherMachine: the volume was at another machine of the slot for a while, which has reported. Others that have heard it
// count the reports of this one only if they are of a new session.
func TestNewSessionAfterAnotherMachine(t *testing.T) {
	r, s, _ := recoveryWithoutEtcd(t)
	key := node.EtcdQuorumReportKey("demo", "a")
	look := func() string {
		t.Helper()
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}

		return r.memory.own.Session
	}

	first := look()
	if again := look(); again != first {
		t.Errorf("session %s follows %s, and nobody else has reported", again, first)
	}

	body, err := r.member.agent.signRecord(key, etcd.QuorumReport{Slot: "a", Machine: "i-other", Volume: "vol-a", Session: "other"})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := s.Put(t.Context(), key, body); err != nil {
		t.Fatal(err)
	}

	second := look()
	if second == first || second == "other" {
		t.Errorf("its reports are of session %s still", second)
	}

	r.member.agent.etcdStopped.Store(true)
	if again := look(); again != second {
		t.Errorf("a machine whose volume does not work reports no more: session %s", again)
	}

	if _, err := s.Put(t.Context(), key, body); err != nil {
		t.Fatal(err)
	}

	if err := r.run(t.Context()); !errors.As(err, new(notReadyError)) || !strings.Contains(err.Error(), "machine i-other has reported") {
		t.Errorf("a machine whose volume does not work replaces the report of another one: %v", err)
	}
}

// TestLossIsConfirmedAgain: a member that has joined may have a volume that EC2 does not list yet.
func TestLossIsConfirmedAgain(t *testing.T) {
	r, _, clock := recoveryWithoutEtcd(t)
	r.noteJoined(etcd.Facts{Joined: []string{"b"}})
	r.memory.lossSince = *clock
	if r.noteJoined(etcd.Facts{Joined: []string{"b"}}); r.memory.lossSince.IsZero() {
		t.Error("the time begins anew without a change")
	}

	if r.noteJoined(etcd.Facts{Joined: []string{"b", "c"}}); !r.memory.lossSince.IsZero() {
		t.Error("the loss that was seen before another member had data counts")
	}
}

// TestAddedLearner: a machine knows the learner that it has added for its volume, also after a restart.
func TestAddedLearner(t *testing.T) {
	root := testAgent(t).Root
	if id := readAdded(root); id != 0 {
		t.Errorf("without a record: learner %x", id)
	}

	for _, id := range []uint64{1, 0xfedcba9876543210} {
		if err := recordAdded(root, id); err != nil || readAdded(root) != id {
			t.Errorf("learner %x: %x, %v", id, readAdded(root), err)
		}
	}
}

// TestNoDecisionOnDetachedVolume: the directory of a volume that was detached by force looks empty. The agent must not take the data
// for lost, and remove the member that runs on another machine of the slot with that volume.
func TestNoDecisionOnDetachedVolume(t *testing.T) {
	r, _, _ := recoveryWithoutEtcd(t)
	a := r.member.agent
	if err := a.Root.MakeDir(etcd.DataMount+"/.slipway-probe", 0o700, 0); err != nil { // no write succeeds
		t.Fatal(err)
	}

	_, err := r.member.gatherFacts(t.Context())
	if !errors.As(err, new(notReadyError)) || !strings.Contains(err.Error(), "does not take writes") {
		t.Errorf("the data counts as lost: %v", err)
	}
}
