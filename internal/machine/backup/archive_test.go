// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

func newArchive(t *testing.T) backup.Archive {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return backup.Archive{Store: store.NewFileStore(t.TempDir()), Sealer: store.NewAgeSealer(id), Cluster: "demo", PartSize: partSize}
}

func randomBytes(n int) []byte {
	out := make([]byte, n)
	source := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = source.Read(out)
	return out
}

const partSize = 1000

const firstID = "20261122t101500z-abcdef"

func TestArchiveReturnsWhatWasWritten(t *testing.T) {
	for _, size := range []int{0, 1, partSize - 1, partSize, partSize + 1, 2*partSize + 7} {
		a := newArchive(t)
		want := randomBytes(size)
		m, err := a.Upload(t.Context(), firstID, iotest.HalfReader(bytes.NewReader(want)))
		if err != nil {
			t.Fatal(err)
		}
		if parts := max(1, (size+partSize-1)/partSize); m.Parts != parts || m.DBSize != int64(size) {
			t.Errorf("%d bytes: %d parts of %d bytes, want %d parts", size, m.Parts, m.DBSize, parts)
		}
		var got bytes.Buffer
		if err := a.Download(t.Context(), m, &got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%d bytes: another snapshot came back", size)
		}
		keys, err := a.Store.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			o, err := a.Store.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if size > 100 && bytes.Contains(o.Body, want[:100]) {
				t.Errorf("%s contains the plain snapshot", key)
			}
		}
	}
}

// TestArchiveDetectsDamage changes the objects and the metadata of a backup in every way that a person with write access to
// the bucket could.
func TestArchiveDetectsDamage(t *testing.T) {
	part := func(n string) string { return backup.Key("demo", firstID, "part-0000"+n) }
	for name, damage := range map[string]func(context.Context, store.Store, *backup.Metadata) error{
		"a bit is changed": func(ctx context.Context, s store.Store, _ *backup.Metadata) error {
			o, err := s.Get(ctx, part("1"))
			o.Body[100] ^= 1
			_, putErr := s.Put(ctx, part("1"), o.Body)
			return errors.Join(err, putErr)
		},
		"parts are exchanged": func(ctx context.Context, s store.Store, _ *backup.Metadata) error {
			x, err := s.Get(ctx, part("0"))
			y, otherErr := s.Get(ctx, part("1"))
			_, putErr := s.Put(ctx, part("0"), y.Body)
			_, otherPutErr := s.Put(ctx, part("1"), x.Body)
			return errors.Join(err, otherErr, putErr, otherPutErr)
		},
		"a part is missing":         func(ctx context.Context, s store.Store, _ *backup.Metadata) error { return s.Delete(ctx, part("0")) },
		"the last part is left out": func(_ context.Context, _ store.Store, m *backup.Metadata) error { m.Parts--; return nil },
		"all parts are left out":    func(_ context.Context, _ store.Store, m *backup.Metadata) error { m.Parts = 0; return nil },
		"the sum is another one": func(_ context.Context, _ store.Store, m *backup.Metadata) error {
			m.SHA256 = strings.Repeat("0", 64)
			return nil
		},
		"it is that of another backup": func(ctx context.Context, s store.Store, m *backup.Metadata) error {
			m.ID = "20261122t101500z-ghijkl"
			for _, n := range []string{"0", "1", "2"} {
				o, err := s.Get(ctx, part(n))
				if err != nil {
					return err
				}
				if _, err := s.Put(ctx, backup.Key("demo", m.ID, "part-0000"+n), o.Body); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArchive(t)
			m, err := a.Upload(t.Context(), firstID, bytes.NewReader(randomBytes(2*partSize+1)))
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(t.Context(), a.Store, &m); err != nil {
				t.Fatal(err)
			}
			err = a.Download(t.Context(), m, io.Discard)
			if !errors.Is(err, backup.ErrDamaged) && !errors.Is(err, store.ErrDecryption) {
				t.Errorf("error %v, want one about the damage", err)
			}
		})
	}
}

// TestCatalog checks that a backup exists from its commit to the beginning of its deletion.
func TestCatalog(t *testing.T) {
	a := newArchive(t)
	c := &backup.Catalog{Archive: a}
	list := func() backup.Listing {
		t.Helper()
		l, err := c.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	m, err := a.Upload(t.Context(), firstID, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(backup.Listing{Incomplete: []string{firstID}}, list()); diff != "" {
		t.Errorf("before the commit (-want +got):\n%s", diff)
	}
	m.TakenAt = time.Date(2026, 11, 22, 10, 15, 0, 0, time.UTC)
	if err := a.Commit(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(t.Context(), m); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a second commit: %v", err)
	}
	if diff := cmp.Diff(backup.Listing{Backups: []backup.Backup{{Metadata: m}}}, list()); diff != "" {
		t.Errorf("after the commit (-want +got):\n%s", diff)
	}
	v := backup.Verification{ID: firstID, OK: true, VerifiedAt: m.TakenAt}
	if err := a.WriteVerification(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if l := list(); !l.Backups[0].Verified() {
		t.Errorf("after the test: %+v", l.Backups[0])
	}
	n, err := c.ReadNewest(t.Context(), m.TakenAt, backup.Policy{Interval: time.Hour})
	if err != nil || n.Taken == nil || n.Tested == nil || n.Taken.ID != firstID || n.Tested.ID != firstID || n.Future != nil {
		t.Errorf("newest: %+v %v", n, err)
	}
	if err := a.Delete(t.Context(), firstID); err != nil {
		t.Fatal(err)
	}
	if keys, err := a.Store.List(t.Context(), ""); err != nil || len(keys) > 0 {
		t.Errorf("the deletion left %v: %v", keys, err)
	}
	for _, id := range []string{"", "..", "a/b", "20261122t101500z", "20261122t101500z-/x"} {
		if err := a.Delete(t.Context(), id); err == nil {
			t.Errorf("deleted %q", id)
		}
	}
}

// TestNewestOfSeveral checks which backups are read for a short summary.
func TestNewestOfSeveral(t *testing.T) {
	a := newArchive(t)
	ids := []string{"20261122t100000z-a", "20261122t110000z-a", "20261122t120000z-a", "20261122t130000z-a"}
	for i, id := range ids {
		m, err := a.Upload(t.Context(), id, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if i == 3 {
			break // it is not complete
		}
		if err := a.Commit(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids[:2] {
		if err := a.WriteVerification(t.Context(), backup.Verification{ID: id, OK: true}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		now                   string
		taken, tested, future string
	}{
		{"13:00", ids[2], ids[1], ""},
		{"11:30", ids[2], ids[1], ""}, // a clock that is a little ahead
		{"10:30", ids[1], ids[1], ids[2]},
		{"09:30", ids[0], ids[0], ids[2]},
		{"08:30", "", "", ids[2]},
	} {
		now, err := time.Parse("2006-01-02 15:04", "2026-11-22 "+c.now)
		if err != nil {
			t.Fatal(err)
		}
		n, err := (&backup.Catalog{Archive: a}).ReadNewest(t.Context(), now, backup.Policy{Interval: time.Hour})
		if err != nil || idOf(n.Taken) != c.taken || idOf(n.Tested) != c.tested || idOf(n.Future) != c.future {
			t.Errorf("at %s: %+v, %v", c.now, n, err)
		}
	}
}

func idOf(b *backup.Backup) string {
	if b == nil {
		return ""
	}
	return b.ID
}

// TestCopy: a copy belongs to its new cluster alone, and has the same snapshot. A damaged backup has no copy.
func TestCopy(t *testing.T) {
	from, to := newArchive(t), newArchive(t)
	to.Cluster = "other"
	want := randomBytes(2*partSize + 7)
	m, err := from.Upload(t.Context(), firstID, bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	m.ClusterID, m.RequestID, m.Revision, m.TakenAt = "id-of-demo", "r", 7, time.Unix(1000, 0)
	const copyID = "20261123t101500z-copied"
	copied, err := to.Copy(t.Context(), from, m, copyID)
	if err != nil {
		t.Fatal(err)
	}
	listing, err := (&backup.Catalog{Archive: to}).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	origin := backup.Origin{Cluster: "demo", ClusterID: "id-of-demo", ID: firstID}
	found, ok := listing.FindCopy(origin)
	if !ok || found.ID != copyID || found.Cluster != "other" || found.Revision != 7 || !found.TakenAt.Equal(m.TakenAt) ||
		found.Reason != backup.ReasonCopy || found.RequestID != "" {
		t.Fatalf("the copy: %+v", found)
	}
	if _, ok := listing.FindCopy(backup.Origin{Cluster: "demo", ClusterID: "id-of-another-demo", ID: firstID}); ok {
		t.Error("a backup of an earlier cluster of the same name counts as this one")
	}
	var got bytes.Buffer
	if err := to.Download(t.Context(), copied, &got); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("another snapshot was copied: %v", err)
	}
	if bytes.Equal(copied.SealedKey, m.SealedKey) {
		t.Error("the copy has the key of the other cluster")
	}
	if err := (backup.Archive{Store: to.Store, Sealer: from.Sealer, Cluster: "other"}).Download(t.Context(), copied, io.Discard); err == nil {
		t.Error("the other cluster's sealer opens the copy")
	}

	if err := from.Store.Delete(t.Context(), backup.Key("demo", firstID, "part-00002")); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Copy(t.Context(), from, m, "20261123t101501z-broken"); !errors.Is(err, backup.ErrDamaged) {
		t.Errorf("a damaged backup was copied: %v", err)
	}
	if listing, err = (&backup.Catalog{Archive: to}).List(t.Context()); err != nil || len(listing.Backups) != 1 {
		t.Errorf("%d backups, %v: the unfinished copy counts", len(listing.Backups), err)
	}
}

// TestCopyIsKept: a copy of an old backup is not deleted before it could be restored.
func TestCopyIsKept(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	f := backup.Facts{Now: now, Policy: backup.Policy{Interval: time.Hour, KeepAll: time.Hour, KeepDaily: 1, VerifyEvery: 6}}
	for i := range 4 {
		at := now.Add(time.Duration(i-10) * time.Minute)
		b := backup.Backup{Metadata: backup.Metadata{ID: backup.NewID(at, "own"), TakenAt: at, Reason: backup.ReasonSchedule}}
		b.Verification = &backup.Verification{OK: true}
		f.Backups = append(f.Backups, b)
	}
	copied := backup.Backup{Metadata: backup.Metadata{
		ID: backup.NewID(now.Add(-time.Minute), "copied"), TakenAt: now.Add(-1000 * time.Hour), Reason: backup.ReasonCopy,
	}}
	f.Backups = append(f.Backups, copied)
	if got := backup.Decide(f); got.Type != backup.ActionNone {
		t.Errorf("a fresh copy: %+v", got)
	}
	f.Now = now.Add(25 * time.Hour)
	f.Policy.Disabled = true
	if got := backup.Decide(f); got.Type != backup.ActionDelete || len(got.IDs) == 0 {
		t.Errorf("a copy of yesterday: %+v", got)
	}
}

// TestDiscard: the parts of a backup that was not completed are deleted, and one that was completed stays, although the answer was lost.
func TestDiscard(t *testing.T) {
	a := backup.Archive{Store: store.NewFileStore(t.TempDir()), Cluster: "demo"}
	for _, id := range []string{"20261128t120000z-parts", "20261128t120000z-complete"} {
		if _, err := a.Store.Put(t.Context(), backup.Key("demo", id, "part-00000"), []byte("part")); err != nil {
			t.Fatal(err)
		}

		if id == "20261128t120000z-complete" {
			if err := a.Commit(t.Context(), backup.Metadata{ID: id}); err != nil {
				t.Fatal(err)
			}
		}

		if err := a.Discard(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}

	keys, err := a.Store.List(t.Context(), "")
	if err != nil || len(keys) != 2 || !strings.Contains(keys[0], "complete") {
		t.Errorf("left: %v, %v", keys, err)
	}
}
