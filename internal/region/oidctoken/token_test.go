// SPDX-License-Identifier: Apache-2.0

package oidctoken_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/oidctoken"
)

func encode(v any) string {
	b, _ := json.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(b)
}

func text(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// signer makes tokens with one algorithm, and the JSON key that verifies them.
type signer struct {
	key  map[string]string
	sign func(text string) []byte
}

func digest(h crypto.Hash, text string) []byte {
	w := h.New()
	w.Write([]byte(text))
	return w.Sum(nil)
}

func newRSA(t *testing.T, h crypto.Hash) signer {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return signer{
		map[string]string{"kty": "RSA", "kid": "k", "n": text(k.N.Bytes()), "e": text(big.NewInt(int64(k.E)).Bytes())},
		func(text string) []byte {
			s, err := rsa.SignPKCS1v15(rand.Reader, k, h, digest(h, text))
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	}
}

func newECDSA(t *testing.T, c elliptic.Curve, h crypto.Hash) signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := k.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	size := (len(point) - 1) / 2
	return signer{
		map[string]string{"kty": "EC", "kid": "k", "use": "sig", "crv": c.Params().Name, "x": text(point[1 : 1+size]), "y": text(point[1+size:])},
		func(text string) []byte {
			r, s, err := ecdsa.Sign(rand.Reader, k, digest(h, text))
			if err != nil {
				t.Fatal(err)
			}
			return append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...)
		},
	}
}

func (s signer) token(header, claims map[string]any) string {
	text := encode(header) + "." + encode(claims)
	return text + "." + base64.RawURLEncoding.EncodeToString(s.sign(text))
}

func claims(change map[string]any) map[string]any {
	out := map[string]any{"iss": "https://i", "sub": "s", "aud": "a", "exp": 2.5, "iat": 1}
	maps.Copy(out, change)
	return out
}

func keySet(t *testing.T, keys ...map[string]string) oidctoken.KeySet {
	t.Helper()
	b, _ := json.Marshal(map[string]any{"keys": keys})
	set, err := oidctoken.ParseKeySet(b)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestAlgorithms(t *testing.T) {
	t.Parallel()
	all := map[string]signer{
		"RS256": newRSA(t, crypto.SHA256), "RS384": newRSA(t, crypto.SHA384), "RS512": newRSA(t, crypto.SHA512),
		"ES256": newECDSA(t, elliptic.P256(), crypto.SHA256), "ES384": newECDSA(t, elliptic.P384(), crypto.SHA384), "ES512": newECDSA(t, elliptic.P521(), crypto.SHA512),
	}
	for name, s := range all {
		for other, o := range all {
			token, err := oidctoken.Parse(s.token(map[string]any{"alg": name, "kid": "k"}, claims(nil)))
			if err != nil {
				t.Fatal(err)
			}
			if err := token.Verify(keySet(t, o.key)); (err == nil) != (name == other) || err != nil && !errors.Is(err, oidctoken.ErrSignature) {
				t.Errorf("a token of %s with the key of %s: %v", name, other, err)
			}
		}
	}
	s := all["ES256"]
	for _, header := range []map[string]any{{"alg": "none", "kid": "k"}, {"alg": "HS256", "kid": "k"}, {"alg": "RS256", "kid": "k"}, {"alg": "ES384", "kid": "k"}, {"alg": "ES256"}, {"alg": "ES256", "kid": "l"}} {
		token, err := oidctoken.Parse(s.token(header, claims(nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := token.Verify(keySet(t, s.key)); !errors.Is(err, oidctoken.ErrSignature) {
			t.Errorf("%v: %v", header, err)
		}
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	s := newECDSA(t, elliptic.P256(), crypto.SHA256)
	header := map[string]any{"alg": "ES256", "kid": "k"}
	token, err := oidctoken.Parse(s.token(header, claims(map[string]any{"aud": []string{"a", "b"}, "azp": "p", "nbf": 3})))
	if err != nil || token.Issuer != "https://i" || token.Subject != "s" || len(token.Audiences) != 2 || token.Party != "p" ||
		token.Expires.Unix() != 2 || token.IssuedAt.Unix() != 1 || token.NotBefore.Unix() != 3 {
		t.Errorf("%+v, %v", token, err)
	}
	for _, missing := range []string{"iss", "sub", "aud", "exp", "iat"} {
		if _, err := oidctoken.Parse(s.token(header, claims(map[string]any{missing: nil}))); !errors.Is(err, oidctoken.ErrMalformed) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
	good := s.token(header, claims(nil))
	for _, bad := range []string{
		"", "a.b", good + ".x", strings.Replace(good, ".", "=.", 1), good + "=",
		s.token(map[string]any{"alg": "ES256", "kid": "k", "crit": []string{"b64"}}, claims(nil)), s.token(header, claims(map[string]any{"aud": 1})),
	} {
		if _, err := oidctoken.Parse(bad); !errors.Is(err, oidctoken.ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestKeySets(t *testing.T) {
	t.Parallel()
	good := newECDSA(t, elliptic.P256(), crypto.SHA256).key
	change := func(k, v string) map[string]string {
		out := map[string]string{}
		maps.Copy(out, good)
		out[k] = v
		return out
	}
	for name, keys := range map[string][]map[string]string{
		"a short RSA key":       {{"kty": "RSA", "kid": "k", "n": text(make([]byte, 256)), "e": "AQAB"}},
		"an even exponent of 0": {{"kty": "RSA", "kid": "k", "n": text([]byte(strings.Repeat("a", 256))), "e": "AA"}},
		"not base64":            {{"kty": "RSA", "kid": "k", "n": "+", "e": "AQAB"}},
		"another curve":         {change("crv", "P-224")},
		"a point off the curve": {change("x", good["y"])},
		"a short coordinate":    {change("x", "AQ")},
		"two keys with one id":  {good, good},
	} {
		b, _ := json.Marshal(map[string]any{"keys": keys})
		if _, err := oidctoken.ParseKeySet(b); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	s := newECDSA(t, elliptic.P256(), crypto.SHA256)
	token, err := oidctoken.Parse(s.token(map[string]any{"alg": "ES256", "kid": "k"}, claims(nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.key["use"] = "enc"
	if token.Verify(keySet(t, s.key, map[string]string{"kty": "OKP", "kid": "x"})) == nil {
		t.Error("a key for encryption verifies a signature")
	}
}

// unproven is a token that no key has signed.
const unproven = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJpIiwic3ViIjoicyIsImF1ZCI6ImEiLCJleHAiOjEsImlhdCI6MX0.AQ"

func FuzzParse(f *testing.F) {
	f.Add(unproven)
	f.Fuzz(func(t *testing.T, text string) {
		token, err := oidctoken.Parse(text)
		if err != nil && !errors.Is(err, oidctoken.ErrMalformed) || err == nil && (token.Subject == "" || token.Issuer == "") {
			t.Errorf("%q: %+v, %v", text, token, err)
		}
		if err == nil && token.Verify(oidctoken.KeySet{}) == nil {
			t.Errorf("%q verifies without a key", text)
		}
	})
}

func FuzzParseKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"EC","kid":"k","crv":"P-256","x":"AQ","y":"AQ"},{"kty":"RSA","kid":"l","n":"AQ","e":"AQAB"}]}`))
	token, err := oidctoken.Parse(unproven)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		if set, err := oidctoken.ParseKeySet(document); err == nil && token.Verify(set) == nil {
			t.Errorf("%s verifies a token that no key has signed", document)
		}
	})
}
