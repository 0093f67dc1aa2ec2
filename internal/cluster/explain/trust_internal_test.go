// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

// authority returns a certificate of a new authority as PEM, and its fingerprint.
func authority(t *testing.T, name string) (text, fingerprint string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Date(2036, 1, 2, 0, 0, 0, 0, time.UTC), IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), fmt.Sprintf("%x", sha256.Sum256(der))
}

// TestAuthoritiesAreNamed: whoever can write to the bucket adds an authority. The plan showed only another size and
// hash of the text; it names the certificates.
func TestAuthoritiesAreNamed(t *testing.T) {
	own, ownSum := authority(t, "kubernetes")
	intruder, intruderSum := authority(t, "intruder")
	document := func(ca string) []byte {
		body, err := json.Marshal(map[string]any{"trust": map[string]string{"kubernetesCA": ca}})
		if err != nil {
			t.Fatal(err)
		}
		return body
	}

	settings := DocumentSettings(document(own), document(own+intruder))
	if len(settings) != 1 || settings[0].Setting != "trust.kubernetesCA" {
		t.Fatalf("settings %+v", settings)
	}
	if got, want := fmt.Sprint(settings[0].Old), "CN=kubernetes until 2036-01-02, sha256 "+ownSum; got != want {
		t.Errorf("before: %s, want %s", got, want)
	}
	if now := fmt.Sprint(settings[0].New); !strings.HasSuffix(now, "; CN=intruder until 2036-01-02, sha256 "+intruderSum) {
		t.Errorf("now: %s", now)
	}
	if got := DescribeTrust("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"); !strings.HasPrefix(got, "57 bytes, sha256 ") {
		t.Errorf("a public key: %s", got)
	}
}
