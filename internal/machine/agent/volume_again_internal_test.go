// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// stoppedMember is a member on vol-1 that was stopped because its volume did not work, with a watch that sees a volume that works.
type stoppedMember struct {
	*volumeWatch
	agent *Agent
	store store.Store
	run   *killedRunner
}

func newStoppedMember(t *testing.T) stoppedMember {
	t.Helper()
	a := testAgent(t)
	a.doc = testDocument(t, 3, a.bundle)
	a.EC2 = &fakeEC2{}
	run := &killedRunner{killer: &killer{left: 1000}}
	a.Run = run
	slot, _ := a.doc.Slot("a")
	m := &etcdMember{agent: a, slot: slot, store: store.NewFileStore(t.TempDir()), volume: "vol-1"}
	writeMountinfo(t, a, true)
	if err := a.Root.MakeDir(etcd.DataDir+"/member", 0o700, 0); err != nil {
		t.Fatal(err)
	}
	if err := m.recordVolume(); err != nil {
		t.Fatal(err)
	}
	a.etcdStopped.Store(true)
	w := m.newVolumeWatch()
	w.look = workingVolume
	return stoppedMember{volumeWatch: w, agent: a, store: m.store, run: run}
}

// lookTwice takes two looks, and reports whether etcd was started.
func (s stoppedMember) lookTwice(t *testing.T) bool {
	t.Helper()
	for range 2 {
		if err := s.watchOnce(t.Context()); err != nil && !errors.As(err, new(notReadyError)) {
			t.Fatal(err)
		}
	}
	return slices.ContainsFunc(s.run.calls, func(call string) bool { return strings.HasPrefix(call, "systemctl start") })
}

// TestVolumeThatWorksAgain: etcd starts again with the data that it had.
func TestVolumeThatWorksAgain(t *testing.T) {
	s := newStoppedMember(t)
	if !s.lookTwice(t) || s.agent.etcdStopped.Load() || s.agent.etcdFenced.Load() {
		t.Errorf("etcd does not run again: %q", s.run.calls)
	}
}

// TestCopyIsAttachedAgain: somebody attached a volume that was made from a snapshot, in place of the one that failed. A member that starts
// with its data may have confirmed writes which are not in it.
func TestCopyIsAttachedAgain(t *testing.T) {
	s := newStoppedMember(t)
	s.member.volume = "vol-copy"
	if s.lookTwice(t) || !s.agent.etcdStopped.Load() {
		t.Errorf("etcd runs with the data of a copy: %q", s.run.calls)
	}
}

// TestVolumeOfAnEarlierGeneration: etcd was restored from a backup while the volume was detached. With the data of before it would be
// another cluster.
func TestVolumeOfAnEarlierGeneration(t *testing.T) {
	s := newStoppedMember(t)
	signGeneration(t, s.agent, s.store, etcd.Generation{Number: 2, Slot: "b", Backup: "b1", Token: "t"})
	if s.lookTwice(t) || !s.agent.etcdFenced.Load() || s.member.hasData() || !s.agent.Root.Exists(asideDir+"/member") {
		t.Errorf("etcd runs with data of before the restoration, or that was not set aside: %q", s.run.calls)
	}
	if s.agent.etcdStopped.Load() {
		t.Error("the volume still counts as broken")
	}
}

// TestEmptyVolumeIsAttached: the member must be added before it starts without data, which the task that looks for restorations does.
func TestEmptyVolumeIsAttached(t *testing.T) {
	s := newStoppedMember(t)
	if err := s.agent.Root.RemoveAll(etcd.DataDir + "/member"); err != nil {
		t.Fatal(err)
	}
	if s.lookTwice(t) || !s.agent.etcdFenced.Load() || s.agent.etcdStopped.Load() {
		t.Errorf("etcd starts without data and without a decision: %q", s.run.calls)
	}
}

// TestSlotIsRestoredOnce: a machine that was taken for lost restores the backup that its successor has restored already. Each would be a
// cluster by itself.
func TestSlotIsRestoredOnce(t *testing.T) {
	s := newStoppedMember(t)
	m := s.member
	key := node.EtcdRestoredKey(s.agent.doc.Cluster, 2, "a")
	body, err := s.agent.signRecord(key, joinedRecord{Volume: "vol-2", Generation: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Create(t.Context(), key, body); err != nil {
		t.Fatal(err)
	}
	f := etcd.Facts{Slot: "a", Prepared: true, Joined: []string{"b", "c"}, Generation: &etcd.Generation{Number: 2, Slot: "a", Recovery: &etcd.Recovery{}}}
	putRestored(t, m)
	err = m.restoreBackup(t.Context(), f)
	if !errors.As(err, new(notReadyError)) || !strings.Contains(err.Error(), "vol-2") || !s.agent.Root.Exists(restoredDir) {
		t.Errorf("another machine of the slot restored it: %v", err)
	}
	m.volume = "vol-2" // the machine that was killed after it had recorded
	if err := m.restoreBackup(t.Context(), f); err != nil || s.agent.Root.Exists(restoredDir) {
		t.Errorf("it does not continue: %v", err)
	}
}

// putRestored replaces a member's data by a restored database that is not in use yet.
func putRestored(t *testing.T, m *etcdMember) {
	t.Helper()
	if err := m.agent.Root.RemoveAll(etcd.DataDir); err != nil {
		t.Fatal(err)
	}
	if err := m.agent.Root.MakeDir(restoredDir+"/member", 0o700, 0); err != nil {
		t.Fatal(err)
	}
}

// TestTwoMachinesOfASlot: a machine and its successor restore a generation, and the first one is killed at each of its effects. One of them
// has the data in the end: that whose volume the record names.
func TestTwoMachinesOfASlot(t *testing.T) {
	f := etcd.Facts{Slot: "a", Prepared: true, Joined: []string{"b", "c"}, Generation: &etcd.Generation{Number: 2, Slot: "a", Recovery: &etcd.Recovery{}}}
	for effects := range 4 {
		shared := store.NewFileStore(t.TempDir())
		first, second := newStoppedMember(t).member, newStoppedMember(t).member
		second.volume = "vol-2"
		for _, m := range []*etcdMember{first, second} {
			m.store = shared
			putRestored(t, m)
		}
		first.store = killedStore{shared, &killer{left: effects}}
		_ = first.restoreBackup(t.Context(), f)
		first.store = shared
		_ = second.restoreBackup(t.Context(), f)
		if !first.hasData() {
			_ = first.restoreBackup(t.Context(), f)
		}
		record, err := readJSONObject[joinedRecord](t.Context(), shared, node.EtcdRestoredKey(first.agent.doc.Cluster, 2, "a"))
		if err != nil {
			t.Fatal(err)
		}
		if first.hasData() != (record.Volume == "vol-1") || second.hasData() != (record.Volume == "vol-2") {
			t.Errorf("killed after %d effects: restored by the first machine: %v, by the second: %v; the record names %s",
				effects, first.hasData(), second.hasData(), record.Volume)
		}
	}
}
