// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// restoring lets etcd be restored by slot a, with a signed generation.
func (m attackedMember) restoring() {
	m.Helper()
	signGeneration(m.T, m.agent, m.records, etcd.Generation{Number: 2, Token: "t", Backup: "b1", Slot: "a"})
}

// of lets the member be that of another slot.
func (m attackedMember) of(slot string) attackedMember {
	m.Helper()
	m.slot, _ = m.agent.doc.Slot(slot)
	m.volume = "vol-" + slot

	return m
}

// joined returns the slots whose members have the data of the newest generation.
func (m attackedMember) joined() []string {
	m.Helper()
	g, err := m.readGeneration(m.Context())
	if err != nil {
		m.Fatal(err)
	}

	out, err := m.listJoined(m.Context(), g)
	if err != nil {
		m.Fatal(err)
	}

	return out
}

// TestForgedRestored: while slot a restores a backup, who may write to the machine store says that the others have its data. Seen to
// succeed as long as these records were not signed: a member without data joined the former cluster, the restorer did not look whether
// that works, and the backup could be deleted.
func TestForgedRestored(t *testing.T) {
	m := newAttackedMember(t, 3)
	m.agent.EC2 = &fakeEC2{}
	m.restoring()
	for _, slot := range []string{"a", "b"} {
		m.write(node.EtcdRestoredKey("demo", 2, slot), `{"volume":"vol-`+slot+`"}`)
	}

	m.write(node.EtcdRestoredKey("demo", 2, "c"), "not JSON")

	f, err := m.of("c").gatherFacts(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	f.Members = []etcd.Member{
		{ID: 1, Name: "etcd-a", Slot: "a", Healthy: true},
		{ID: 2, Name: "etcd-b", Slot: "b", Healthy: true},
	}
	f.Comparison.Equal = true
	if got := etcd.Decide(f); got.Type != etcd.ActionWait || !strings.Contains(got.Reason, "slot a is restoring") {
		t.Errorf("a member without data joins the former cluster: %+v", got)
	}

	if got := m.formerManager(f).Peers; len(got) != 2 {
		t.Errorf("its members do not count as those of the former cluster: %+v", got)
	}

	if _, isRestoring, err := m.restoredBackup(t.Context()); err != nil || !isRestoring {
		t.Errorf("the restoration counts as ended: %v", err)
	}
}

// TestForgedRestoredOfOwnSlot: who may write to the machine store says that the restorer has had the data. It does not restore a second
// time, since an agent of an earlier version may have written the record, and tells the operator which object it is.
func TestForgedRestoredOfOwnSlot(t *testing.T) {
	m := newAttackedMember(t, 3)
	m.agent.EC2 = &fakeEC2{}
	m.restoring()
	key := node.EtcdRestoredKey("demo", 2, "a")
	m.write(key, `{"volume":"vol-other"}`)
	got, err := m.decide()
	if err != nil || got.Type != etcd.ActionWait {
		t.Errorf("decided %+v, %v", got, err)
	}

	for _, want := range []string{key, "not signed", "slipway etcd restore --again"} {
		if !strings.Contains(got.Reason, want) {
			t.Errorf("%q does not name %q", got.Reason, want)
		}
	}

	if err := checkRestoredHere(t.Context(), m.etcdMember, etcd.Generation{Number: 2}); err == nil || !strings.Contains(err.Error(), "not signed") {
		t.Errorf("another volume: %v", err)
	}

	if err := m.records.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}

	if got, err := m.decide(); err != nil || got.Type != etcd.ActionRestore {
		t.Errorf("without it: decided %+v, %v", got, err)
	}
}

// TestCopiedRestored: a signed record counts for its slot and its restoration only.
func TestCopiedRestored(t *testing.T) {
	m := newAttackedMember(t, 3)
	m.restoring()
	if err := m.recordRestored(t.Context(), 2); err != nil {
		t.Fatal(err)
	}

	if got := m.joined(); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("joined %v", got)
	}

	o, err := m.records.Get(t.Context(), node.EtcdRestoredKey("demo", 2, "a"))
	if err != nil {
		t.Fatal(err)
	}

	m.write(node.EtcdRestoredKey("demo", 2, "b"), string(o.Body))
	m.write(node.EtcdRestoredKey("demo", 3, "a"), string(o.Body))
	if got := m.joined(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("copied to another slot: joined %v", got)
	}

	if got, err := m.readRestored(t.Context(), 3); err != nil || len(got.Signed) > 0 {
		t.Errorf("copied to another restoration: %+v, %v", got, err)
	}
}

// TestRestoredOfAnEarlierVersion: agents of earlier versions do not sign. Their record counts once the member's own record does, which an
// agent of this version signs when it starts with the data. Until then nobody restores a second time.
func TestRestoredOfAnEarlierVersion(t *testing.T) {
	m := newAttackedMember(t, 3)
	m.agent.EC2 = &fakeEC2{}
	m.restoring()
	for _, slot := range []string{"a", "b", "c"} {
		m.write(node.EtcdRestoredKey("demo", 2, slot), `{"volume":"vol-`+slot+`"}`)
		m.write(node.EtcdJoinedKey("demo", slot), `{"volume":"vol-`+slot+`","generation":2}`)
	}

	if got := m.joined(); len(got) > 0 {
		t.Fatalf("unsigned records count: %v", got)
	}

	b := m.of("b")
	b.giveData()
	if err := writeGeneration(m.agent.Root.Path(etcd.DataDir), 2); err != nil {
		t.Fatal(err)
	}

	if err := b.recordData(t.Context()); err != nil {
		t.Fatal(err)
	}

	if got := m.joined(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("with the data of slot b: joined %v", got)
	}

	if err := m.agent.Root.RemoveAll(etcd.DataDir); err != nil {
		t.Fatal(err)
	}

	f, err := m.of("a").gatherFacts(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	f.Members = []etcd.Member{{ID: 2, Name: "etcd-b", Slot: "b", Healthy: true}}
	f.Comparison.Equal = true
	if got := etcd.Decide(f); got.Type != etcd.ActionAddLearner {
		t.Errorf("the restorer, whose data is lost, does not join again: %+v", got)
	}
}
