// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// attackedMember is a member of etcd whose records somebody changes who may write to the machine store and has no key.
type attackedMember struct {
	*testing.T
	*etcdMember
	records store.Store
	runner  *killedRunner
}

func newAttackedMember(t *testing.T, slots int) attackedMember {
	t.Helper()
	a := testAgent(t)
	a.doc = testDocument(t, slots, a.bundle)
	runner := &killedRunner{killer: &killer{left: 1000}}
	a.Run = runner
	writeMountinfo(t, a, false)
	slot, _ := a.doc.Slot("a")
	s := store.NewFileStore(t.TempDir())
	m := &etcdMember{agent: a, slot: slot, store: s, volume: "vol-1"}

	return attackedMember{T: t, etcdMember: m, records: s, runner: runner}
}

// giveData gives the member data of before any restoration.
func (m attackedMember) giveData() {
	m.Helper()
	if err := m.agent.Root.MakeDir(etcd.DataDir+"/member", 0o700, 0); err != nil {
		m.Fatal(err)
	}
}

// write writes an object of the machine store as the attacker.
func (m attackedMember) write(key, body string) {
	m.Helper()
	if _, err := m.records.Put(m.Context(), key, []byte(body)); err != nil {
		m.Fatal(err)
	}
}

// decide returns the member's next action.
func (m attackedMember) decide() (etcd.Action, error) {
	f, err := m.gatherFacts(m.Context())

	return etcd.Decide(f), err
}

// TestForgedGeneration: who may write to the machine store, without any right to a key, has etcd restored from an older backup. Seen to
// succeed as long as generations were not signed: the member stopped etcd and set its data aside, and one without data restored the
// backup.
func TestForgedGeneration(t *testing.T) {
	const forged = `{"number":2,"token":"t","backup":"20261122t101500z-abcdef","slot":"a","createdAt":"2026-11-26T00:00:00Z","by":"root"}`

	t.Run("with data", func(t *testing.T) {
		m := newAttackedMember(t, 1)
		m.giveData()
		m.write(node.EtcdGenerationKey("demo", 2), forged)
		if got, err := m.decide(); err != nil || got.Type != etcd.ActionStartExisting {
			t.Errorf("decided %+v, %v", got, err)
		}

		err := m.watchGeneration(t.Context())
		if err == nil || !strings.Contains(err.Error(), "generations/000002") || !strings.Contains(err.Error(), "not signed") {
			t.Errorf("while it runs: %v", err)
		}

		if len(m.runner.calls) > 0 || m.agent.etcdFenced.Load() || !m.hasData() {
			t.Errorf("the agent ran %q", m.runner.calls)
		}
	})

	t.Run("without data", func(t *testing.T) {
		m := newAttackedMember(t, 1)
		m.write(node.EtcdGenerationKey("demo", 2), forged)
		m.write(node.EtcdJoinedKey("demo", "a"), `{"volume":"vol-1"}`)
		m.agent.EC2 = &fakeEC2{}
		if got, err := m.decide(); err == nil {
			t.Errorf("decided %+v", got)
		}
	})
}

// TestGenerationOfAnEarlierVersion: a generation without a signature counts as long as a machine has its data.
func TestGenerationOfAnEarlierVersion(t *testing.T) {
	const earlier = `{"number":2,"token":"t","backup":"b1","slot":"b"}`
	check := func(m attackedMember, isRead bool) {
		t.Helper()
		g, err := m.readGeneration(t.Context())
		if isRead && (err != nil || g == nil || g.Number != 2) || !isRead && (err == nil || !strings.Contains(err.Error(), "not signed")) {
			t.Errorf("read %+v, %v", g, err)
		}
	}

	m := newAttackedMember(t, 3)
	m.write(node.EtcdGenerationKey("demo", 2), earlier)
	m.write(node.EtcdJoinedKey("demo", "b"), `{"volume":"vol-b","generation":2}`)
	check(m, false) // nobody has signed the record of slot b
	m.giveData()
	check(m, false) // the data is older
	if err := writeGeneration(m.agent.Root.Path(etcd.DataDir), 2); err != nil {
		t.Fatal(err)
	}

	check(m, true)
	if err := m.writeJoinedRecord(t.Context(), joinedRecord{Volume: "vol-1"}); err != nil {
		t.Fatal(err)
	}

	if err := os.RemoveAll(m.agent.Root.Path(etcd.DataDir)); err != nil {
		t.Fatal(err)
	}

	check(m, true) // by the signed record
	m.write(node.EtcdGenerationKey("demo", 3), earlier)
	check(m, false) // copied to another number
	signGeneration(t, m.agent, m.records, etcd.Generation{Number: 4, Backup: "b2", Slot: "a"})
	if g, err := m.readGeneration(t.Context()); err != nil || g.Number != 4 {
		t.Errorf("a signed one after a forged one: %+v, %v", g, err)
	}
}

// TestForgedMarker: who may write to the machine store lists a new volume as that of an initial member. Seen to succeed as long as the
// marker was not signed: the member started without data as one that votes, so that a majority may lack what was acknowledged.
func TestForgedMarker(t *testing.T) {
	m := newAttackedMember(t, 3)
	m.agent.EC2 = &fakeEC2{}
	m.write(node.EtcdMarkerKey("demo"), `{"token":"t","volumes":{"a":"vol-1","b":"vol-2","c":"vol-3"}}`)
	if got, err := m.decide(); err != nil || got.Type != etcd.ActionWait {
		t.Errorf("decided %+v, %v", got, err)
	}

	if err := m.records.Delete(t.Context(), node.EtcdMarkerKey("demo")); err != nil {
		t.Fatal(err)
	}

	f := etcd.Facts{Slots: []string{"a"}, Slot: "a", Volume: "vol-1", Visible: map[string]string{"a": "vol-1"}}
	if err := m.createMarker(t.Context(), f); err == nil {
		t.Fatal("the marker was not written")
	}

	if got, err := m.decide(); err != nil || got.Type != etcd.ActionStartNew {
		t.Errorf("with its own marker: decided %+v, %v", got, err)
	}
}

// TestForgedAbsence: who may write to the machine store says that the slots of all members have left the control plane. Seen to succeed
// as long as that was not signed: members set their data aside when their agents started again.
func TestForgedAbsence(t *testing.T) {
	m := newAttackedMember(t, 3)
	m.agent.EC2 = &fakeEC2{}
	m.giveData()
	m.write(node.EtcdAbsentKey("demo", "a"), `{"absent":true}`)
	if got, err := m.decide(); err != nil || got.Type != etcd.ActionStartExisting {
		t.Errorf("decided %+v, %v", got, err)
	}

	if err := m.writeAbsent(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}

	if got, err := m.decide(); err != nil || got.Type != etcd.ActionStartExisting {
		t.Errorf("by the leader's record, and nobody answers: decided %+v, %v", got, err)
	}

	m.others = func(context.Context, etcd.Facts) []etcd.Member {
		return []etcd.Member{{ID: 2, Slot: "b", Healthy: true}}
	}
	if got, err := m.decide(); err != nil || got.Type != etcd.ActionSetAsideLeft {
		t.Errorf("by the leader's record, and the others' membership: decided %+v, %v", got, err)
	}

	o, err := m.records.Get(t.Context(), node.EtcdAbsentKey("demo", "a"))
	if err != nil {
		t.Fatal(err)
	}

	m.write(node.EtcdAbsentKey("demo", "b"), string(o.Body))
	if absent, err := m.readAbsent(t.Context(), "b"); err != nil || absent.Absent {
		t.Errorf("the record of slot a counts for slot b: %v", err)
	}
}

// TestForgedReports: while etcd has no quorum, who may write to the machine store reports for other machines that they have no data, so
// that one of them restores a backup. Seen to succeed as long as reports were not signed. Signed ones of an earlier loss
// do not count either, nor do those of former processes.
func TestForgedReports(t *testing.T) {
	r, s, _ := recoveryWithoutEtcd(t)
	r.memory.asked = true
	r.memory.own.Slot = "a"
	r.memory.newSession()
	key := node.EtcdQuorumReportKey("demo", "b")
	put := func(report etcd.QuorumReport, isSigned bool) *etcd.QuorumReport {
		t.Helper()
		body, err := json.Marshal(report)
		if isSigned {
			body, err = r.member.agent.signRecord(key, report)
		}

		if err != nil {
			t.Fatal(err)
		}

		if _, err := s.Put(t.Context(), key, body); err != nil {
			t.Fatal(err)
		}

		got, err := r.readReport(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}

		return got
	}
	report := func(session string, count int, heard string) etcd.QuorumReport {
		return etcd.QuorumReport{Slot: "b", Session: session, Count: count, Heard: map[string]string{"a": heard}}
	}

	now := r.memory.own.Session
	for count := range 5 {
		if got := put(report("b1", count, now), false); got != nil {
			t.Errorf("without a signature: %+v", got)
		}
	}

	for count := range 5 {
		if got := put(report("b1", count, "earlier"), true); got != nil {
			t.Errorf("of an earlier loss: %+v", got)
		}
	}

	if put(report("b1", 6, now), true) == nil || put(report("b2", 1, now), true) == nil {
		t.Error("the machine's own reports do not count")
	}

	if got := put(report("b1", 7, now), true); got != nil {
		t.Errorf("of a former process: %+v", got)
	}

	if err := r.noteQuorum(t.Context()); err != nil {
		t.Fatal(err)
	}

	r.memory.own.LostAt = time.Now()
	if err := r.noteQuorum(t.Context()); err != nil {
		t.Fatal(err)
	}

	for count := range 5 {
		if got := put(report("b2", 2+count, now), true); got != nil {
			t.Errorf("of the last loss: %+v", got)
		}
	}
}

// TestForgedTests: who may write to the machine store says that the tests of the newest backups failed, so that an older one is
// restored. Seen to succeed as long as verifications were not signed.
func TestForgedTests(t *testing.T) {
	r, s, clock := recoveryWithoutEtcd(t)
	taken := func(at time.Time, revision int64) string {
		t.Helper()
		m := backup.Metadata{FormatVersion: backup.FormatVersion, ID: backup.NewID(at, "abcdef"), Generation: 1}
		m.Revision = revision
		if err := r.backup.archive.Commit(t.Context(), m); err != nil {
			t.Fatal(err)
		}

		return m.ID
	}
	older := taken(clock.Add(-2*time.Hour), 5)
	newer := taken(clock.Add(-time.Hour), 9)
	newest := func() string {
		t.Helper()
		listing, err := (&backup.Catalog{Archive: r.backup.archive}).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		r.memory.useOwnTests(listing.Backups)
		if got := newestRecoverable(listing.Backups, nil); got != nil {
			return got.ID
		}

		return ""
	}

	forged := `{"id":"` + newer + `","ok":false,"error":"damaged"}`
	if _, err := s.Put(t.Context(), backup.Key("demo", newer, "verification.json"), []byte(forged)); err != nil {
		t.Fatal(err)
	}

	if got := newest(); got != newer {
		t.Errorf("a forged failure: backup %s is used", got)
	}

	o, err := s.Get(t.Context(), backup.Key("demo", older, "backup.json"))
	if err != nil {
		t.Fatal(err)
	}

	if _, err := s.Put(t.Context(), backup.Key("demo", newer, "backup.json"), o.Body); err != nil {
		t.Fatal(err)
	}

	listing, err := (&backup.Catalog{Archive: r.backup.archive}).List(t.Context())
	if err != nil || len(listing.Unreadable) != 1 || listing.Unreadable[0].ID != newer {
		t.Errorf("the metadata of another backup: %+v, %v", listing, err)
	}

	if got := newest(); got != older {
		t.Errorf("with the metadata of another backup: backup %s is used", got)
	}

	if err := s.Delete(t.Context(), backup.Key("demo", newer, "backup.json")); err != nil {
		t.Fatal(err)
	}

	r.memory.tests = map[string]backup.Verification{older: {ID: older}}
	if got := newest(); got != "" {
		t.Errorf("its own test failed: backup %s is used", got)
	}
}
