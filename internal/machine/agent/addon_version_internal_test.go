// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// TestOldestServerAppliesAddons: while two versions run, only the agents of the older one apply add-ons.
func TestOldestServerAppliesAddons(t *testing.T) {
	for nodes, want := range map[string]bool{
		"":                  false,
		"v1.36.3 v1.36.3":   false,
		"v1.36.3 v1.35.4":   true,
		"v1.36.10 v1.36.2":  true,
		"v1.36.3 v1.36.10":  false,
		"v1.37.0":           false,
		"unknown":           false,
		"v1.36.3-rc.0":      false,
		"v1.36.3 v1.9.9":    true,
		"v1.100.0 v1.36.30": false,
	} {
		var items []string
		for version := range strings.FieldsSeq(nodes) {
			items = append(items, `{"status":{"nodeInfo":{"kubeletVersion":"`+version+`"}}}`)
		}

		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("labelSelector") != "node-role.kubernetes.io/control-plane" {
				t.Errorf("asked for %s", r.URL)
			}
			_, _ = w.Write([]byte(`{"items":[` + strings.Join(items, ",") + `]}`))
		}))
		got, err := findOlderServer(t.Context(), kube.Client{Server: server.URL, HTTP: server.Client()}, "1.36.3")
		server.Close()
		if err != nil || got != want {
			t.Errorf("%q: %t, %v, want %t", nodes, got, err, want)
		}
	}
}
