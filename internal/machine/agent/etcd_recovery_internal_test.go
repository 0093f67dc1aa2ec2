// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// recoveryWithoutEtcd returns the recovery of a machine without data and without etcd.
func recoveryWithoutEtcd(t *testing.T) (*etcdRecovery, store.Store, *time.Time) {
	t.Helper()
	a := testAgent(t)
	a.doc = testDocument(t, 3, a.bundle)
	a.doc.Etcd.QuorumLoss = v1alpha1.EtcdQuorumLoss{Recovery: v1alpha1.RecoveryAutomatic, After: "1m"}
	a.EC2 = &fakeEC2{volumes: []types.Volume{slotVolume("vol-a", "a", "z", a.instance.ID, time.Now())}}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	a.Sealer = store.NewAgeSealer(id)
	clock := time.Now()
	a.Now = func() time.Time { return clock }
	writeMountinfo(t, a, true)
	slot, _ := a.doc.Slot("a")
	s := store.NewFileStore(t.TempDir())
	m := &etcdMember{agent: a, slot: slot, store: s, volume: "vol-a"}
	r := m.newRecovery()
	r.members = func(context.Context, etcd.Facts) []etcd.Member { return nil }
	return r, s, &clock
}

// TestRecoveryReports: reports count while they change, by the clock of who reads them, and once their machine has heard of this one.
func TestRecoveryReports(t *testing.T) {
	r, s, clock := recoveryWithoutEtcd(t)
	r.memory.own.Slot = "a"
	r.memory.newSession()
	session := r.memory.own.Session
	write := func(count int) {
		t.Helper()
		key := node.EtcdQuorumReportKey("demo", "b")
		body, err := r.member.agent.signRecord(key, etcd.QuorumReport{
			Slot: "b", Volume: "vol-b", Count: count, ReportedAt: clock.Add(-24 * time.Hour), Session: "of b",
			Heard: map[string]string{"a": session},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), key, body); err != nil {
			t.Fatal(err)
		}
	}
	read := func(want bool, what string) {
		t.Helper()
		got, err := r.readReport(t.Context(), "b")
		if err != nil || (got != nil) != want {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	read(false, "no report")
	write(1)
	read(false, "it may be old")
	*clock = clock.Add(10 * time.Second)
	read(false, "it has not changed")
	write(2)
	read(true, "it has changed, and its clock does not matter")
	*clock = clock.Add(time.Minute)
	read(true, "a minute later")
	*clock = clock.Add(time.Second)
	read(false, "it does not change any more")
	write(1)
	read(false, "an earlier report was put back")
	write(3)
	read(true, "it changes again")
	if got := r.memory.own.Heard; got["b"] != "of b" {
		t.Errorf("the machine has heard %v", got)
	}
}

// TestNoRecoveryWithoutNeed: a cluster that was never bootstrapped is left alone, and so is one whose manifest says Manual.
func TestNoRecoveryWithoutNeed(t *testing.T) {
	r, s, clock := recoveryWithoutEtcd(t)
	look := func() etcd.QuorumReport {
		t.Helper()
		for range 20 {
			if err := r.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			*clock = clock.Add(recoveryInterval)
		}
		report, err := readJSONObject[etcd.QuorumReport](t.Context(), s, node.EtcdQuorumReportKey("demo", "a"))
		if err != nil {
			t.Fatal(err)
		}
		if keys, err := s.List(t.Context(), node.EtcdGenerationPrefix("demo")); err != nil || len(keys) > 0 {
			t.Fatalf("a generation began: %v, %v", keys, err)
		}
		return *report
	}
	if got := look(); got.Step != etcd.RecoverNothing {
		t.Errorf("never bootstrapped: %+v", got)
	}
	for _, slot := range []string{"a", "b", "c"} {
		if _, err := s.Put(t.Context(), node.EtcdJoinedKey("demo", slot), []byte(`{"volume":"vol-gone-`+slot+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	if got := look(); got.Step != etcd.RecoverManual || !strings.Contains(got.Reason, "no usable backup") {
		t.Errorf("nothing to restore: %+v", got)
	}
	r.member.agent.doc.Etcd.QuorumLoss = v1alpha1.EtcdQuorumLoss{}
	if got := look(); got.Step != etcd.RecoverManual || !strings.Contains(got.Reason, "Manual") {
		t.Errorf("without the setting: %+v", got)
	}
}

// TestRecoveryWithoutMount: volumes that an operator has unmounted to look at them were reported as empty, so that a recovery
// gave their data up and restored a backup.
func TestRecoveryWithoutMount(t *testing.T) {
	r, s, clock := recoveryWithoutEtcd(t)
	for _, slot := range []string{"a", "b", "c"} {
		if _, err := s.Put(t.Context(), node.EtcdJoinedKey("demo", slot), []byte(`{"volume":"vol-`+slot+`"}`)); err != nil {
			t.Fatal(err)
		}
	}

	look := func(want string) {
		t.Helper()
		err := r.run(t.Context())
		if got := fmt.Sprint(err); (want == "") != (err == nil) || !strings.Contains(got, want) {
			t.Errorf("%v, want %q", err, want)
		}
		*clock = clock.Add(recoveryInterval)
	}
	writeMountinfo(t, r.member.agent, false)
	for range 20 {
		look("the etcd volume vol-a is not mounted at " + etcd.DataMount)
	}
	if keys, err := s.List(t.Context(), node.EtcdGenerationPrefix("demo")); err != nil || len(keys) > 0 {
		t.Errorf("a generation began: %v, %v", keys, err)
	}
	if _, err := s.Get(t.Context(), node.EtcdQuorumReportKey("demo", "a")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the machine reports its volume as empty: %v", err)
	}

	writeMountinfo(t, r.member.agent, true)
	look("")
	if _, err := s.Get(t.Context(), node.EtcdQuorumReportKey("demo", "a")); err != nil {
		t.Errorf("no report with the volume mounted: %v", err)
	}
}

// TestNewestRecoverable: backups of other generations and clusters, and those whose test failed, are not restored.
func TestNewestRecoverable(t *testing.T) {
	newBackup := func(id string, generation int, term uint64, revision int64) backup.Backup {
		return backup.Backup{Metadata: backup.Metadata{
			ID: id, Generation: generation, RaftTerm: term, Contents: backup.Contents{Revision: revision},
		}, IsSigned: true}
	}
	failed := newBackup("failed", 1, 9, 90)
	failed.Verification = &backup.Verification{}
	other := newBackup("copy", 0, 0, 99)
	other.Origin = &backup.Origin{}
	forged := newBackup("forged", 1, 9, 99)
	forged.IsSigned = false
	first := []backup.Backup{newBackup("old", 0, 0, 5), newBackup("b1", 1, 2, 7), newBackup("b2", 1, 3, 6), failed, other, forged}
	g := &etcd.Generation{Number: 2, Backup: "old"}
	for name, c := range map[string]struct {
		backups []backup.Backup
		g       *etcd.Generation
		want    string
	}{
		"none":                              {nil, nil, ""},
		"a later term":                      {first, nil, "b2"},
		"of an earlier version":             {first[:1], nil, "old"},
		"not of another cluster":            {[]backup.Backup{other}, nil, ""},
		"the operator discarded later ones": {first, g, "old"},
		"of the generation":                 {append(first, newBackup("b3", 2, 1, 3)), g, "b3"},
		"the generation's is gone":          {first[1:], g, ""},
	} {
		got := newestRecoverable(c.backups, c.g)
		if (got == nil) != (c.want == "") || got != nil && got.ID != c.want {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}

// TestRecoveryNeedsRoom: a generation does not begin if the volume has no room for the backup.
func TestRecoveryNeedsRoom(t *testing.T) {
	r, s, clock := recoveryWithoutEtcd(t)
	if err := r.member.agent.Root.MakeDir(etcd.DataMount, 0o700, 0); err != nil {
		t.Fatal(err)
	}
	for _, slot := range []string{"a", "b", "c"} {
		if _, err := s.Put(t.Context(), node.EtcdJoinedKey("demo", slot), []byte(`{"volume":"vol-gone-`+slot+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	id := backup.NewID(*clock, "large")
	err := r.backup.archive.Commit(t.Context(), backup.Metadata{
		FormatVersion: backup.FormatVersion, ID: id, DBSize: 1 << 50, Contents: backup.Contents{Revision: 5},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.backup.archive.WriteVerification(t.Context(), backup.Verification{ID: id, OK: true}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err = r.run(t.Context()); err != nil {
			break
		}
		*clock = clock.Add(recoveryInterval)
	}
	if err == nil || !strings.Contains(err.Error(), "its volume has no space for it") {
		t.Errorf("without room: %v", err)
	}
	if keys, err := s.List(t.Context(), node.EtcdGenerationPrefix("demo")); err != nil || len(keys) > 0 {
		t.Errorf("a generation began: %v, %v", keys, err)
	}
}

// checkLastMember checks that the last member, which others have promoted, has the data. It refuses reads until it has heard of
// its promotion.
func checkLastMember(t *testing.T, c *realCluster) {
	t.Helper()
	last := c.client(2)
	eventually(t, "the last member answers", func() error {
		got, err := last.Get(t.Context(), "key0")
		if err == nil && len(got.Kvs) != 1 {
			t.Fatalf("it has no data: %+v", got)
		}
		return err
	})
}

// TestRecoveryLooksSooner: without a quorum a machine looks more often, at once after a step, and at the time at which it acts; and
// it looks more often for a restoration.
func TestRecoveryLooksSooner(t *testing.T) {
	now := time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		report etcd.QuorumReport
		want   time.Duration
	}{
		{etcd.QuorumReport{Step: etcd.RecoverWait}, urgentRecoveryInterval},
		{etcd.QuorumReport{Step: etcd.RecoverManual}, urgentRecoveryInterval},
		{etcd.QuorumReport{Step: etcd.RecoverSave}, progressPause},
		{etcd.QuorumReport{Step: etcd.RecoverVerify}, progressPause},
		{etcd.QuorumReport{Step: etcd.RecoverBegin}, urgentRecoveryInterval},
		{etcd.QuorumReport{Step: etcd.RecoverWait, DueAt: now.Add(3 * time.Second)}, 3 * time.Second},
		{etcd.QuorumReport{Step: etcd.RecoverWait, DueAt: now.Add(time.Minute)}, urgentRecoveryInterval},
		{etcd.QuorumReport{Step: etcd.RecoverWait, DueAt: now.Add(-time.Second)}, urgentRecoveryInterval},
	} {
		if got := untilNextLook(c.report, now); got != c.want {
			t.Errorf("%+v: %s, want %s", c.report, got, c.want)
		}
	}

	r, _, _ := recoveryWithoutEtcd(t)
	a := r.member.agent
	if err := r.member.lookForGeneration(t.Context()); err != nil {
		t.Errorf("with a quorum: %v", err)
	}
	if again, ok := errors.AsType[againError](r.look(t.Context())); !ok || again.after != urgentRecoveryInterval || !a.quorumLost.Load() {
		t.Errorf("without a quorum: %+v, %t", again, a.quorumLost.Load())
	}
	if again, ok := errors.AsType[againError](r.member.lookForGeneration(t.Context())); !ok || again.after != urgentGenerationInterval {
		t.Errorf("a restoration is looked for: %+v", again)
	}
	r.members = func(context.Context, etcd.Facts) []etcd.Member { return []etcd.Member{{ID: 1, Healthy: true}} }
	if err := r.look(t.Context()); err != nil || a.quorumLost.Load() {
		t.Errorf("with a quorum again: %v, %t", err, a.quorumLost.Load())
	}
}
