// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

// unreadableArchive returns an archive with five backups, of which the second, the fourth and the fifth cannot be read.
func unreadableArchive(t *testing.T) (a backup.Archive, ids []string) {
	t.Helper()
	a = newArchive(t)
	bodies := []string{"", "no JSON", "", `{"formatVersion":9,"id":"20261122t130000z-a"}`, `[]`}
	for i, body := range bodies {
		id := backup.NewID(noon.Add(time.Duration(i-2)*time.Hour), "a")
		ids = append(ids, id)
		m, err := a.Upload(t.Context(), id, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}

		m.TakenAt = noon.Add(time.Duration(i-2) * time.Hour)
		if body == "" {
			err = a.Commit(t.Context(), m)
		} else {
			_, err = a.Store.Put(t.Context(), backup.Key(a.Cluster, id, "backup.json"), []byte(body))
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	return a, ids
}

// TestUnreadableBackups: a backup of another format, or one whose metadata is no JSON, made all others unusable: none was listed, taken,
// deleted or recovered.
func TestUnreadableBackups(t *testing.T) {
	a, ids := unreadableArchive(t)
	c := &backup.Catalog{Archive: a}
	listing, err := c.List(t.Context())
	if err != nil || len(listing.Backups) != 2 || listing.Backups[0].ID != ids[0] || listing.Backups[1].ID != ids[2] {
		t.Fatalf("%+v, %v", listing, err)
	}

	want := []backup.Unreadable{{ID: ids[1]}, {ID: ids[3]}, {ID: ids[4]}}
	if diff := cmp.Diff(want, listing.Unreadable, cmpopts.IgnoreFields(backup.Unreadable{}, "Reason")); diff != "" {
		t.Errorf("unreadable (-want +got):\n%s", diff)
	}

	if got := listing.DescribeMissing("other"); got != "it does not exist any more" {
		t.Errorf("a backup that does not exist: %q", got)
	}

	reasons := []string{"invalid character", "format 9", "cannot unmarshal array"}
	for i, u := range listing.Unreadable {
		if !strings.Contains(u.Reason, reasons[i]) || !strings.Contains(u.Reason, u.ID) || listing.DescribeMissing(u.ID) != u.Reason {
			t.Errorf("the reason of %s is %q, want %q", u.ID, u.Reason, reasons[i])
		}
	}

	far := backup.Facts{
		Now:        noon.Add(900 * 24 * time.Hour),
		Policy:     defaultPolicy(t),
		Backups:    listing.Backups,
		Incomplete: listing.Incomplete,
	}
	far.Policy.Disabled = true
	if got := backup.Decide(far); slices.ContainsFunc(want, func(u backup.Unreadable) bool { return slices.Contains(got.IDs, u.ID) }) {
		t.Errorf("an unreadable backup is tested or deleted: %+v", got)
	}
}

// TestNewestBeforeUnreadable: the newest backups are those before the ones that cannot be read, which are named, the newest first.
func TestNewestBeforeUnreadable(t *testing.T) {
	a, ids := unreadableArchive(t)
	if err := a.WriteVerification(t.Context(), backup.Verification{ID: ids[0], OK: true}); err != nil {
		t.Fatal(err)
	}

	n, err := (&backup.Catalog{Archive: a}).ReadNewest(t.Context(), noon.Add(3*time.Hour), backup.Policy{Interval: time.Hour})
	if err != nil || idOf(n.Taken) != ids[2] || idOf(n.Tested) != ids[0] || n.Future != nil {
		t.Fatalf("%+v, %v", n, err)
	}

	want := []backup.Unreadable{{ID: ids[4]}, {ID: ids[3]}}
	if diff := cmp.Diff(want, n.Unreadable, cmpopts.IgnoreFields(backup.Unreadable{}, "Reason")); diff != "" {
		t.Errorf("unreadable (-want +got):\n%s", diff)
	}
}

// TestUnreadableTest: a backup whose verification cannot be read counts as one that could not be tested: it can be restored, and is not
// tested again and again, as no other result can be stored.
func TestUnreadableTest(t *testing.T) {
	a, ids := unreadableArchive(t)
	if _, err := a.Store.Put(t.Context(), backup.Key(a.Cluster, ids[2], "verification.json"), []byte("no JSON")); err != nil {
		t.Fatal(err)
	}

	listing, err := (&backup.Catalog{Archive: a}).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	found, ok := listing.Find(ids[2])
	if !ok || !found.Untestable() || found.IsTestSigned || !strings.Contains(found.Verification.Error, "verification.json") {
		t.Errorf("%+v %+v", found, found.Verification)
	}

	f := backup.Facts{Now: noon.Add(time.Minute), Policy: defaultPolicy(t), Backups: listing.Backups}
	if got := backup.Decide(f); got.Type != backup.ActionNone {
		t.Errorf("%+v", got)
	}
}

// TestUnreadableIsReplaced: an object that was replaced by a former version of it is read again.
func TestUnreadableIsReplaced(t *testing.T) {
	a, ids := unreadableArchive(t)
	c := &backup.Catalog{Archive: a}
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}

	m := backup.Metadata{FormatVersion: backup.FormatVersion, ID: ids[1]}
	key := backup.Key(a.Cluster, m.ID, "backup.json")
	if err := a.Commit(t.Context(), m); !errors.Is(err, store.ErrConflict) {
		t.Fatal(err)
	}

	if err := a.Store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}

	if err := a.Commit(t.Context(), m); err != nil {
		t.Fatal(err)
	}

	listing, err := c.List(t.Context())
	if _, ok := listing.Find(m.ID); !ok || err != nil {
		t.Errorf("%+v, %v", listing, err)
	}
}
