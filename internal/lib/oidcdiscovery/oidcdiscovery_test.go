// SPDX-License-Identifier: Apache-2.0

package oidcdiscovery_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/oidcdiscovery"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/region/oidctoken"
)

// publicPEM returns the public half of a key.
func publicPEM(tb testing.TB, key crypto.Signer) string {
	tb.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		tb.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func newKey(tb testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	tb.Helper()
	k, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// webKey is a key of a key set, as RFC 7517 and RFC 7518 define it.
type webKey struct {
	Kty, Use, Alg, Crv, Kid, X, Y string
}

// readKeys returns the keys of a set, and fails if they have private parts or are not points of the curve.
func readKeys(tb testing.TB, body []byte) (keys []webKey, public []*ecdsa.PublicKey) {
	tb.Helper()
	var set struct{ Keys []webKey }
	if err := json.Unmarshal(body, &set); err != nil {
		tb.Fatal(err)
	}
	if strings.Contains(string(body), `"d"`) {
		tb.Fatal("the set has a private key")
	}
	if _, err := oidctoken.ParseKeySet(body); err != nil {
		tb.Fatalf("STS of the local region: %v", err)
	}
	for _, k := range set.Keys {
		x, errX := base64.RawURLEncoding.DecodeString(k.X)
		y, errY := base64.RawURLEncoding.DecodeString(k.Y)
		if errX != nil || errY != nil || len(x) != 32 || len(y) != 32 {
			tb.Fatalf("coordinates of %+v: %v, %v", k, errX, errY)
		}
		p, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
		if err != nil {
			tb.Fatal(err)
		}
		public = append(public, p)
	}
	return set.Keys, public
}

// TestKeySet reads the keys back. Their ids are those that Kubernetes writes into tokens.
func TestKeySet(t *testing.T) {
	a := newKey(t, elliptic.P256())
	b := newKey(t, elliptic.P256())
	text := publicPEM(t, a) + publicPEM(t, b) + publicPEM(t, a)
	body, err := oidcdiscovery.EncodeKeySet([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	keys, public := readKeys(t, body)
	if len(keys) != 2 {
		t.Fatalf("%d keys, want 2: a key that is given twice is listed once", len(keys))
	}
	for i, want := range []*ecdsa.PrivateKey{a, b} {
		der, err := x509.MarshalPKIXPublicKey(want.Public())
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(der)
		id := base64.RawURLEncoding.EncodeToString(sum[:])
		if k := keys[i]; !want.PublicKey.Equal(public[i]) || k.Alg != "ES256" || k.Use != "sig" || k.Kty != "EC" || k.Kid != id {
			t.Errorf("key %d is %+v", i, k)
		}
	}
	if again, err := oidcdiscovery.EncodeKeySet([]byte(text)); err != nil || string(again) != string(body) {
		t.Errorf("the same keys gave other bytes: %v", err)
	}
}

// TestKeySetOfPKI: the keys of a cluster have the form that is expected.
func TestKeySetOfPKI(t *testing.T) {
	k, err := pki.NewKey(pki.ServiceAccountKey)
	if err != nil {
		t.Fatal(err)
	}
	text, err := k.PublicPEM()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := oidcdiscovery.EncodeKeySet(text); err != nil {
		t.Error(err)
	}
}

func TestKeySetIsChecked(t *testing.T) {
	key := newKey(t, elliptic.P256())
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	private := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	good := publicPEM(t, key)
	for name, c := range map[string]struct{ text, want string }{
		"nothing":         {"", "not PEM"},
		"text":            {"hello", "not PEM"},
		"text after keys": {good + "hello", "not PEM"},
		"a private key":   {good + private, `public key 2 of the service accounts: is a PEM block of type "PRIVATE KEY"`},
		"RSA":             {publicPEM(t, rsaKey), "is not on the curve P-256"},
		"another curve":   {publicPEM(t, newKey(t, elliptic.P384())), "is not on the curve P-256"},
		"broken":          {string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")})), "public key 1"},
	} {
		_, err := oidcdiscovery.EncodeKeySet([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("%s: the error contains a key: %v", name, err)
		}
	}
}

func TestConfiguration(t *testing.T) {
	body, err := oidcdiscovery.EncodeConfiguration("https://oidc.s3.us-east-1.amazonaws.com/demo", "id-1")
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "issuer": "https://oidc.s3.us-east-1.amazonaws.com/demo",
  "jwks_uri": "https://oidc.s3.us-east-1.amazonaws.com/demo/openid/v1/jwks",
  "authorization_endpoint": "urn:kubernetes:programmatic_authorization",
  "response_types_supported": [
    "id_token"
  ],
  "subject_types_supported": [
    "public"
  ],
  "id_token_signing_alg_values_supported": [
    "ES256"
  ],
  "claims_supported": [
    "sub",
    "iss"
  ],
  "slipway_cluster_id": "id-1"
}
`
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Error(diff)
	}
	c, err := oidcdiscovery.ParseConfiguration(body)
	if err != nil || c.ClusterID != "id-1" || c.Issuer != "https://oidc.s3.us-east-1.amazonaws.com/demo" {
		t.Errorf("%+v, %v", c, err)
	}
	for _, in := range [][2]string{{"", "id"}, {"https://a", ""}} {
		if _, err := oidcdiscovery.EncodeConfiguration(in[0], in[1]); err == nil {
			t.Errorf("%q was encoded", in)
		}
	}
	for _, text := range []string{"", "[]", "{", strings.Repeat(" ", 1<<20) + "{}"} {
		if _, err := oidcdiscovery.ParseConfiguration([]byte(text)); err == nil {
			t.Errorf("%.10q was parsed", text)
		}
	}
}

// FuzzKeySet: whatever is encoded is a set of public keys that STS reads.
func FuzzKeySet(f *testing.F) {
	f.Add([]byte(publicPEM(f, newKey(f, elliptic.P256()))))
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		body, err := oidcdiscovery.EncodeKeySet(text)
		if err != nil {
			return
		}
		if keys, _ := readKeys(t, body); len(keys) == 0 {
			t.Error("a set without keys")
		}
	})
}

// FuzzConfiguration: a document that was read is encoded and read again as the same.
func FuzzConfiguration(f *testing.F) {
	f.Add([]byte(`{"issuer":"https://a","slipway_cluster_id":"x"}`))
	f.Add([]byte(`{"issuer":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := oidcdiscovery.ParseConfiguration(text)
		if err != nil || c.Issuer == "" || c.ClusterID == "" {
			return
		}
		body, err := oidcdiscovery.EncodeConfiguration(c.Issuer, c.ClusterID)
		if err != nil {
			t.Fatal(err)
		}
		again, err := oidcdiscovery.ParseConfiguration(body)
		if err != nil || again.Issuer != c.Issuer || again.ClusterID != c.ClusterID {
			t.Errorf("%+v became %+v: %v", c, again, err)
		}
	})
}
