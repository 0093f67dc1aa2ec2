// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// TestLoadCatalog: a catalogue is the embedded one, a file, or fetched by HTTP; all that is read must be a
// catalogue.
func TestLoadCatalog(t *testing.T) {
	embedded, err := manifests.LoadCatalog(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	text, err := embedded.YAML()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "catalog.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/catalog.yaml" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(text)
	}))
	defer server.Close()
	for _, from := range []string{file, "file://" + file, server.URL + "/catalog.yaml"} {
		got, err := manifests.LoadCatalog(t.Context(), from)
		if err != nil {
			t.Errorf("%s: %v", from, err)
		}
		if diff := cmp.Diff(embedded.Versions("kubelet"), got.Versions("kubelet")); diff != "" {
			t.Errorf("%s: %s", from, diff)
		}
	}
	for _, from := range []string{file + ".missing", server.URL + "/missing"} {
		_, err := manifests.LoadCatalog(t.Context(), from)
		if err == nil || !strings.Contains(err.Error(), "read the asset catalogue") || len(diag.Hints(err)) == 0 {
			t.Errorf("%s: %v", from, err)
		}
	}
}

// TestLoadCatalogEnds: a server that never answers does not outlive the caller's context.
func TestLoadCatalogEnds(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	defer server.Close()
	defer close(ended)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := manifests.LoadCatalog(ctx, server.URL); err == nil {
		t.Error("a catalogue without an answer")
	}
}
