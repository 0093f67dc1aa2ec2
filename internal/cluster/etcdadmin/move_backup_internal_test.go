// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

// movedCluster is a cluster whose machine has taken backups, without a machine now.
type movedCluster struct {
	*testing.T
	admin *Admin
	// machine is the archive of the machine, which signs what it writes.
	machine backup.Archive
}

func newMovedCluster(t *testing.T) movedCluster {
	t.Helper()
	c := newTwoClusters(t)
	ca, err := c.authority(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	machine := c.to
	machine.Records = authorityRecords{ca}
	admin := &Admin{
		env:       &cluster.Env{Now: time.Now, User: "alice"},
		name:      "new",
		archive:   c.to,
		authority: func(context.Context) (pki.CA, error) { return ca, nil },
	}

	return movedCluster{T: t, admin: admin, machine: machine}
}

// add stores a backup with an id and a position in the history.
func (c movedCluster) add(archive backup.Archive, id string, generation int, revision int64) {
	c.Helper()
	m, err := archive.Upload(c.Context(), id, strings.NewReader("snapshot"))
	if err != nil {
		c.Fatal(err)
	}

	m.Generation = generation
	m.Revision = revision
	if err := archive.Commit(c.Context(), m); err != nil {
		c.Fatal(err)
	}
}

// restore begins a generation from a backup.
func (c movedCluster) restore(number int, id string) {
	c.Helper()
	plan := RestorePlan{Cluster: "new", Generation: number, Slot: "a"}
	plan.Backup.ID = id
	if err := c.admin.beginGeneration(c.Context(), plan); err != nil {
		c.Fatal(err)
	}
}

// checkNewest checks which backup a move would restore.
func (c movedCluster) checkNewest(when, want string) {
	c.Helper()
	got, _, err := c.admin.newestBackup(c.Context())
	if err != nil {
		c.Fatalf("%s: %v", when, err)
	}

	if (got == nil) != (want == "") || got != nil && got.ID != want {
		c.Errorf("%s: the move restores %+v, want %q", when, got, want)
	}

	if got != nil && got.SealedKey != nil {
		c.Errorf("%s: the plan has the sealed key of the backup", when)
	}
}

const (
	oldBackup       = "20261122t100000z-aaaaaa"
	discardedBackup = "20261122t110000z-aaaaaa"
	foreignBackup   = "20261122t120000z-aaaaaa"
	restoredBackup  = "20261122t130000z-aaaaaa"
	skewedBackup    = "20261122t123000z-aaaaaa"
)

// TestMoveRestoresPresentData: a move restored the backup with the latest time in its id, also one of the data that a restoration had
// discarded, one of another cluster, and one that nobody with the cluster's keys had written.
func TestMoveRestoresPresentData(t *testing.T) {
	c := newMovedCluster(t)
	c.checkNewest("without a backup", "")
	c.add(c.machine, oldBackup, 1, 10)
	c.add(c.machine, discardedBackup, 1, 20)
	c.checkNewest("before a restoration", discardedBackup)

	c.restore(2, oldBackup)
	c.checkNewest("after the restoration of an old backup", oldBackup)

	copied := backup.Metadata{
		FormatVersion: backup.FormatVersion,
		ID:            foreignBackup,
		Origin:        &backup.Origin{Cluster: "old", ID: oldBackup},
		Generation:    2,
		Contents:      backup.Contents{Revision: 99},
	}
	if err := c.machine.Commit(t.Context(), copied); err != nil {
		t.Fatal(err)
	}

	c.add(c.admin.archive, "20261122t140000z-aaaaaa", 2, 99)
	c.checkNewest("with a copy and an unsigned backup", oldBackup)

	c.add(c.machine, restoredBackup, 2, 1_000_000_020)
	c.add(c.machine, skewedBackup, 2, 1_000_000_030)
	c.checkNewest("with backups of the restored data, of machines with other clocks", skewedBackup)

	forged := backup.Verification{ID: skewedBackup, Error: "damaged"}
	if err := c.admin.archive.WriteVerification(t.Context(), forged); err != nil {
		t.Fatal(err)
	}

	c.checkNewest("with a forged test", skewedBackup)
	failed := backup.Verification{ID: restoredBackup, Error: "damaged"}
	if err := c.machine.WriteVerification(t.Context(), failed); err != nil {
		t.Fatal(err)
	}

	c.restore(3, foreignBackup)
	c.checkNewest("after the restoration of a copy", foreignBackup)
	c.restore(4, restoredBackup)
	c.checkNewest("after the restoration of a backup that failed its test", "")
}

// TestMoveWithoutBackup: the error of a move without a backup says whether there are others, and how to use them.
func TestMoveWithoutBackup(t *testing.T) {
	p := MovePlan{Cluster: "demo"}
	if err := p.describeNoBackup(0); !strings.Contains(err.Error(), "cluster demo has no backup of etcd") {
		t.Error(err)
	}

	if err := p.describeNoBackup(2); !strings.Contains(err.Error(), "no backup of its present etcd data") {
		t.Error(err)
	}
}
