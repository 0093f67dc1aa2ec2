// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"errors"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

func newTestCA(t *testing.T) pki.CA {
	t.Helper()
	key, err := pki.NewKey(pki.KubernetesCA)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewCA(pki.KubernetesCA, "demo", key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// TestVerifyMessage: a signature is valid for its CA, its purpose and its message, and for nothing else.
func TestVerifyMessage(t *testing.T) {
	ca := newTestCA(t)
	other := newTestCA(t)
	signature, err := ca.Key().SignMessage("revisions", []byte("message"))
	if err != nil {
		t.Fatal(err)
	}
	both := append(other.CertsPEM(), ca.CertsPEM()...)
	for name, c := range map[string]struct {
		certs    []byte
		purpose  string
		message  string
		accepted bool
	}{
		"right":                  {ca.CertsPEM(), "revisions", "message", true},
		"CA during its rotation": {both, "revisions", "message", true},
		"another CA":             {other.CertsPEM(), "revisions", "message", false},
		"another purpose":        {ca.CertsPEM(), "revision", "smessage", false},
		"another message":        {ca.CertsPEM(), "revisions", "messagf", false},
		"no message":             {ca.CertsPEM(), "revisions", "", false},
	} {
		err := pki.VerifyMessage(c.certs, c.purpose, []byte(c.message), signature)
		if (err == nil) != c.accepted || err != nil && !errors.Is(err, pki.ErrSignature) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := (pki.Key{}).SignMessage("revisions", nil); err == nil {
		t.Error("a key that is not loaded signed")
	}
}
