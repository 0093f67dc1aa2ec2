// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestSnapshotWithinOneTerm: a snapshot during which the term changed is taken again, so that the term of each backup is known.
func TestSnapshotWithinOneTerm(t *testing.T) {
	for _, c := range []struct {
		terms     []uint64
		want      uint64
		snapshots int
	}{
		{[]uint64{4, 4}, 4, 1},
		{[]uint64{4, 5, 5}, 5, 2},
		{[]uint64{4, 5, 7, 7}, 7, 3},
		{[]uint64{1, 2, 3, 4, 5, 6, 7, 8}, 0, 5},
	} {
		taken := 0
		got, err := withinOneTerm(t.Context(), func(context.Context) (uint64, error) {
			next := c.terms[0]
			c.terms = c.terms[1:]
			return next, nil
		}, func(context.Context) error {
			taken++
			return nil
		})
		if got != c.want || taken != c.snapshots || (err == nil) != (c.want > 0) {
			t.Errorf("term %d after %d snapshots (%v), want %d after %d", got, taken, err, c.want, c.snapshots)
		}
	}
}

// keptBackups is the task of an agent whose archive has an old backup and several young ones. None is taken.
type keptBackups struct {
	*testing.T
	*etcdBackup
	// old is the id of the old one.
	old string
}

func newKeptBackups(t *testing.T) keptBackups {
	t.Helper()
	a := testAgent(t)
	slot, _ := a.doc.Slot("a")
	k := keptBackups{T: t, etcdBackup: newEtcdBackup(&etcdMember{agent: a, slot: slot, store: store.NewFileStore(t.TempDir())})}
	k.old = k.add(900*24*time.Hour, 1)
	for n := range 4 {
		k.add(time.Duration(n+1)*time.Minute, 1)
	}

	return k
}

// add stores a backup of a generation that was taken so long ago and was tested, and returns its id.
func (k keptBackups) add(ago time.Duration, generation int) string {
	k.Helper()
	at := k.now().Add(-ago)
	meta := backup.Metadata{
		FormatVersion: backup.FormatVersion,
		ID:            backup.NewID(at, "x"),
		Cluster:       k.agent.doc.Cluster,
		TakenAt:       at,
		Reason:        backup.ReasonSchedule,
		Generation:    generation,
	}
	if err := k.archive.Commit(k.Context(), meta); err != nil {
		k.Fatal(err)
	}

	if err := k.archive.WriteVerification(k.Context(), backup.Verification{ID: meta.ID, OK: true}); err != nil {
		k.Fatal(err)
	}

	return meta.ID
}

// hasOld reports whether the old backup exists after a look.
func (k keptBackups) hasOld() bool {
	k.Helper()
	policy, err := backup.NewPolicy(v1alpha1.EtcdBackup{Disabled: true})
	if err != nil {
		k.Fatal(err)
	}

	if err := k.look(k.Context(), policy); err != nil {
		k.Fatal(err)
	}

	listing, err := k.catalog.List(k.Context())
	if err != nil {
		k.Fatal(err)
	}

	_, ok := listing.Find(k.old)

	return ok
}

// TestRestoredBackupIsKept: retention deletes the backup of a restoration only when the members of all slots have its data, and when
// there is another one of that data.
func TestRestoredBackupIsKept(t *testing.T) {
	k := newKeptBackups(t)
	root := k.agent.Root
	if err := root.MakeDir(etcd.DataDir+"/member", 0o700, 0); err != nil {
		t.Fatal(err)
	}

	if _, err := root.Write(File{Path: etcd.DataDir + "/" + generationFile, Body: []byte("2"), Mode: 0o600}); err != nil {
		t.Fatal(err)
	}

	signGeneration(t, k.agent, k.member.store, etcd.Generation{Number: 2, Backup: k.old, Slot: "a"})
	for _, name := range slotNames(k.agent) {
		if !k.hasOld() {
			t.Fatalf("the backup was deleted before the member of slot %s had its data", name)
		}

		key := node.EtcdRestoredKey(k.agent.doc.Cluster, 2, name)
		body, err := k.agent.signRecord(key, joinedRecord{Volume: "vol-" + name, Generation: 2})
		if err != nil {
			t.Fatal(err)
		}

		if _, err := k.member.store.Create(t.Context(), key, body); err != nil {
			t.Fatal(err)
		}
	}

	if !k.hasOld() {
		t.Fatal("the backup was deleted before there was one of the restored data")
	}

	k.add(0, 2)
	if k.hasOld() {
		t.Error("the backup is kept for ever")
	}
}
