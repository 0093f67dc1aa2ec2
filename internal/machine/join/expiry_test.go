// SPDX-License-Identifier: Apache-2.0

package join_test

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// TestCertificatesEnd: the certificates of a node are valid for the time of the endpoint, and no longer.
func TestCertificatesEnd(t *testing.T) {
	w := newWorld(t)
	got, err := w.client().Join(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	latest := time.Now().Add(w.server.TTL + time.Minute)
	for name, text := range map[string]string{"client": got.Client, "server": got.Server} {
		certs, err := pki.ParseCerts([]byte(text))
		if err != nil || len(certs) == 0 {
			t.Fatal(name, err)
		}

		if end := certs[0].NotAfter; end.After(latest) || end.Before(time.Now()) {
			t.Errorf("%s: valid until %s", name, end)
		}
	}
}
