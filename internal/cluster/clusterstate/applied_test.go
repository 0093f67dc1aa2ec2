// SPDX-License-Identifier: Apache-2.0

package clusterstate_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestCatalogIsPending: a catalogue that was written after the last apply is pending until the next one.
func TestCatalogIsPending(t *testing.T) {
	s := store.NewFileStore(t.TempDir())
	put := func(key string, body []byte) {
		t.Helper()
		if _, err := s.Put(t.Context(), key, body); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, want bool) {
		t.Helper()
		if got, err := clusterstate.IsCatalogPending(t.Context(), s, "demo"); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", when, got, err, want)
		}
	}
	apply := func() {
		t.Helper()
		documents, err := clusterstate.HashDocuments(t.Context(), s, "demo")
		if err != nil {
			t.Fatal(err)
		}
		body, err := plan.LastApplied{Documents: documents}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		put(clusterstate.LastAppliedKey("demo"), body)
	}

	put(manifest.AssetsKey("demo"), []byte("old"))
	check("before the first apply", false)
	apply()
	check("after an apply", false)
	put(manifest.AssetsKey("demo"), []byte("new"))
	check("with another catalogue", true)
	apply()
	check("after its apply", false)
	put(clusterstate.LastAppliedKey("demo"), []byte("no JSON"))
	check("with a record that cannot be parsed", false)
}
