// SPDX-License-Identifier: Apache-2.0

package clusterstate_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

func TestClusterIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		id := clusterstate.NewClusterID()
		if !clusterstate.IsClusterID(id) || seen[id] {
			t.Fatalf("%q", id)
		}
		seen[id] = true
	}
	for _, bad := range []string{"", "unmarked", "ABCDEFGHIJKLMNOP", "abcdefghijklmno", "abcdefghijklmnopq", "abcdefghijklmno1"} {
		if clusterstate.IsClusterID(bad) {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestOwnershipIsKept: a create that runs again keeps the id, and a record survives being read and written.
func TestOwnershipIsKept(t *testing.T) {
	s := store.NewFileStore(t.TempDir())
	for range 2 {
		if _, err := clusterstate.EnsureOwnership(t.Context(), s, "demo"); err != nil {
			t.Fatal(err)
		}
	}
	first, was, err := clusterstate.ReadOwnership(t.Context(), s, "demo")
	if err != nil || was.ETag == "" || !clusterstate.IsClusterID(first.ID) {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := clusterstate.EnsureOwnership(t.Context(), s, "demo"); err != nil {
		t.Fatal(err)
	}
	next := first
	next.Token, next.FormerToken = "b", "a"
	if _, err := clusterstate.WriteOwnership(t.Context(), s, "demo", next, was); err != nil {
		t.Fatal(err)
	}
	if got, _, err := clusterstate.ReadOwnership(t.Context(), s, "demo"); err != nil || got != next {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := clusterstate.WriteOwnership(t.Context(), s, "demo", first, was); err == nil {
		t.Error("an outdated version was replaced")
	}
}

// TestOldCluster: a cluster without a record has the id of its authorities, also in a copy of its store.
func TestOldCluster(t *testing.T) {
	read := func(certs string) string {
		s := store.NewFileStore(t.TempDir())
		if certs != "" {
			if _, err := s.Create(t.Context(), pki.CertsObjectKey("demo"), []byte(certs)); err != nil {
				t.Fatal(err)
			}
		}
		got, was, err := clusterstate.ReadOwnership(t.Context(), s, "demo")
		if err != nil || was.ETag != "" {
			t.Fatal(err)
		}
		return got.ID
	}
	a, b := read(`{"one": 1}`), read(`{"two": 2}`)
	if !clusterstate.IsClusterID(a) || a == b || a != read(`{"one": 1}`) || read("") != "" {
		t.Errorf("%q, %q, %q", a, b, read(""))
	}
}

func TestBrokenOwnership(t *testing.T) {
	for body, want := range map[string]string{
		`{`:                                     "is not a valid record",
		`{"version":1,"id":"DEMO"}`:             "is not a valid record",
		`{"version":2,"id":"aaaaaaaaaaaaaaaa"}`: "unknown format version 2",
	} {
		s := store.NewFileStore(t.TempDir())
		if _, err := s.Create(t.Context(), clusterstate.OwnershipKey("demo"), []byte(body)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := clusterstate.ReadOwnership(t.Context(), s, "demo"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
		if _, err := clusterstate.EnsureOwnership(t.Context(), s, "demo"); err == nil {
			t.Errorf("%s was replaced", body)
		}
	}
}

func TestOwnsTags(t *testing.T) {
	own := clusterstate.Ownership{ID: "aaaaaaaaaaaaaaaa"}
	for id, want := range map[string]bool{"": true, "aaaaaaaaaaaaaaaa": true, "bbbbbbbbbbbbbbbb": false} {
		if got := own.OwnsTags(map[string]string{"slipway.dev/id": id}); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
}
