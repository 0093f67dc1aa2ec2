// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

// testPrograms are the programs of a test of a backup: etcdutl, which works, and an etcd.
type testPrograms struct {
	etcd  error // how etcd ends; nil: it serves nothing, and does not end
	tests int
}

func (p *testPrograms) Run(ctx context.Context, name string, args ...string) (string, error) {
	switch {
	case name == "env":
		p.tests++
		if p.etcd != nil {
			return "", p.etcd
		}
		<-ctx.Done()
		return "", ctx.Err()
	case strings.Contains(strings.Join(args, " "), "status"):
		return `{"hash":1,"revision":7,"totalKey":3}`, nil
	case strings.Contains(strings.Join(args, " "), "hashkv"):
		return `{"hash":9}`, nil
	}
	return "", nil
}

// TestUntestableBackup: a test whose etcd does not run, or does not answer, was repeated without end, and no other backup was taken
// while it did. After three attempts the failure is the result of the test. It says nothing of the backup, which is kept and can
// be restored.
func TestUntestableBackup(t *testing.T) {
	for name, programs := range map[string]*testPrograms{
		"etcd is killed":       {etcd: errors.New("signal: killed")},
		"etcd does not answer": {},
	} {
		t.Run(name, func(t *testing.T) {
			b := backupToTest(t, programs)
			m := upload(t, b, "one")
			for attempt := range 2 {
				if err := b.verify(t.Context(), m); err == nil || newestTest(t, b) != nil {
					t.Fatalf("attempt %d: %v, result %+v", attempt, err, newestTest(t, b))
				}
			}
			if err := b.verify(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			v := newestTest(t, b)
			if v == nil || v.OK || !v.Inconclusive || !strings.Contains(v.Error, "3 attempts in a row failed, the last one: test backup "+m.ID) {
				t.Fatalf("after three attempts: %+v", v)
			}
			if programs.tests != 3 {
				t.Errorf("%d attempts", programs.tests)
			}

			// The reason may be gone by the turn of the next backup, which has as many attempts.
			next := upload(t, b, "two")
			for attempt := range 2 {
				if err := b.verify(t.Context(), next); err == nil || newestTest(t, b) != nil {
					t.Fatalf("the next backup, attempt %d: %v, %+v", attempt, err, newestTest(t, b))
				}
			}
			if err := b.verify(t.Context(), next); err != nil || programs.tests != 6 || newestTest(t, b) == nil {
				t.Errorf("the next backup: %v, %d attempts, %+v", err, programs.tests, newestTest(t, b))
			}
		})
	}
}

// TestRecoveryTestsAgain: a recovery tests a backup that could not be tested before. The recorded result stays, and its own counts.
func TestRecoveryTestsAgain(t *testing.T) {
	m := recoveryMemory{tests: map[string]backup.Verification{"x": {ID: "x", OK: true}}}
	inconclusive := &backup.Verification{ID: "x", Inconclusive: true}
	backups := []backup.Backup{
		{
			Metadata:     backup.Metadata{ID: "x", Generation: 1, Contents: backup.Contents{Revision: 9}},
			Verification: inconclusive,
			IsSigned:     true,
			IsTestSigned: true,
		},
		{
			Metadata:     backup.Metadata{ID: "y", Generation: 1, Contents: backup.Contents{Revision: 8}},
			Verification: &backup.Verification{ID: "y", OK: true},
			IsSigned:     true,
			IsTestSigned: true,
		},
	}
	if got := newestRecoverable(backups, nil); got.ID != "x" || got.Verified {
		t.Errorf("before its test: %+v", got)
	}
	m.useOwnTests(backups)
	if got := newestRecoverable(backups, nil); got.ID != "x" || !got.Verified {
		t.Errorf("after its test: %+v", got)
	}

	backups[0].Verification = inconclusive
	m.tests["x"] = backup.Verification{ID: "x"}
	m.useOwnTests(backups)
	if got := newestRecoverable(backups, nil); got.ID != "y" {
		t.Errorf("after a test that failed: %+v", got)
	}
}

// backupToTest returns a task that tests backups with these programs.
func backupToTest(t *testing.T, programs Runner) *etcdBackup {
	t.Helper()
	a := testAgent(t)
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	a.Sealer = store.NewAgeSealer(id)
	a.Run = programs
	clock := time.Now()
	a.Now = func() time.Time { return clock }
	a.Wait = func(ctx context.Context, _ time.Duration) error { // as if the time that etcd has were over
		if ctx.Err() == nil {
			return context.DeadlineExceeded
		}
		return ctx.Err()
	}
	slot, _ := a.doc.Slot("a")
	return newEtcdBackup(&etcdMember{agent: a, slot: slot, store: store.NewFileStore(t.TempDir())})
}

// upload stores a backup.
func upload(t *testing.T, b *etcdBackup, id string) backup.Metadata {
	t.Helper()
	m, err := b.archive.Upload(t.Context(), backup.NewID(b.now(), id), strings.NewReader("snapshot"))
	if err != nil {
		t.Fatal(err)
	}
	m.Contents = backup.Contents{Revision: 7, Keys: 3, HashKV: 9}
	m.TakenAt = b.now()
	if err := b.archive.Commit(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// newestTest returns the result of the newest backup's test; nil if there is none.
func newestTest(t *testing.T, b *etcdBackup) *backup.Verification {
	t.Helper()
	l, err := b.catalog.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l.Backups[len(l.Backups)-1].Verification
}
