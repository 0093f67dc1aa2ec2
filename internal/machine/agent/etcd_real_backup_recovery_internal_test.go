// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestRealRecoveryFromBackup: the data of all members is lost. The machine with a new volume restores the newest backup, once it was
// tested, and the generation says what is lost.
func TestRealRecoveryFromBackup(t *testing.T) {
	c := newRealCluster(t)
	r := newRealRecovery(t, c, "a", store.NewFileStore(t.TempDir()))
	r.join()
	client := c.client(0)
	if _, err := client.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	b := r.recovery.backup
	b.url = r.recovery.url
	b.now = func() time.Time { return r.clock }
	taken, err := b.take(t.Context(), backup.Metadata{Reason: backup.ReasonSchedule})
	if err != nil {
		t.Fatal(err)
	}
	if taken.RaftTerm == 0 || taken.Generation != 1 {
		t.Errorf("the backup does not say of which history it is: %+v", taken)
	}
	if _, err := client.Put(t.Context(), "later", "value"); err != nil {
		t.Fatal(err)
	}
	for slot, stop := range c.stops {
		stop()
		if err := os.RemoveAll(c.dir(slot)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.agent.Root.MakeDir(etcd.DataDir, 0o700, 0); err != nil {
		t.Fatal(err)
	}
	r.clock = r.clock.Add(time.Hour)
	for _, slot := range []string{"a", "b", "c"} { // the volumes of before
		if _, err := r.store.Put(t.Context(), node.EtcdJoinedKey("demo", slot), []byte(`{"volume":"vol-old-`+slot+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	r.recover(2)
	g := r.generation()
	if g.Backup != taken.ID || g.Recovery == nil || g.Recovery.Survivor || g.Recovery.Revision != taken.Revision ||
		strings.Join(g.Recovery.Lost, "") != "abc" || !g.Recovery.TakenAt.Equal(taken.TakenAt) || g.Recovery.LostAt.Before(taken.TakenAt) {
		t.Errorf("%+v, %+v", g, g.Recovery)
	}
	if l := r.backups(); len(l) != 1 || !l[0].Verified() {
		t.Errorf("the backup was not tested before: %+v", l)
	}
	c.start(c.manager.Peers[0], "existing")
	c.await(c.manager.Peers[0])
	client = c.client(0)
	if got, err := client.Get(t.Context(), "key"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("the key of the backup: %+v, %v", got, err)
	}
	if got, err := client.Get(t.Context(), "later"); err != nil || len(got.Kvs) != 0 {
		t.Errorf("the key of after the backup: %+v, %v", got, err)
	}
}
