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

// TestRestoredBackupIsKept: retention deletes the backup of a restoration only when the members of all slots have its data.
func TestRestoredBackupIsKept(t *testing.T) {
	a := testAgent(t)
	slot, _ := a.doc.Slot("a")
	m := &etcdMember{agent: a, slot: slot, store: store.NewFileStore(t.TempDir())}
	b := newEtcdBackup(m)
	var old string
	for _, ago := range []time.Duration{900 * 24 * time.Hour, 3 * time.Minute, 2 * time.Minute, time.Minute, 0} {
		at := b.now().Add(-ago)
		meta := backup.Metadata{
			FormatVersion: backup.FormatVersion, ID: backup.NewID(at, "x"), Cluster: a.doc.Cluster, TakenAt: at, Reason: backup.ReasonSchedule,
		}
		if err := b.archive.Commit(t.Context(), meta); err != nil {
			t.Fatal(err)
		}
		if err := b.archive.WriteVerification(t.Context(), backup.Verification{ID: meta.ID, OK: true}); err != nil {
			t.Fatal(err)
		}
		if old == "" {
			old = meta.ID
		}
	}
	exists := func() bool {
		t.Helper()
		policy, err := backup.NewPolicy(v1alpha1.EtcdBackup{Disabled: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.look(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		listing, err := b.catalog.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, ok := listing.Find(old)
		return ok
	}
	signGeneration(t, a, m.store, etcd.Generation{Number: 2, Backup: old, Slot: "a"})
	for _, name := range slotNames(a) {
		if !exists() {
			t.Fatalf("the backup was deleted before the member of slot %s had its data", name)
		}
		if _, err := m.store.Create(t.Context(), node.EtcdRestoredKey(a.doc.Cluster, 2, name), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if exists() {
		t.Error("the backup is kept for ever")
	}
}
