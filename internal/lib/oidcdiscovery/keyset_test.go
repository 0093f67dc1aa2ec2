// SPDX-License-Identifier: Apache-2.0

package oidcdiscovery_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/oidcdiscovery"
)

// TestKeySetIsReadBack: the keys that are written are read, under the ids that tokens name.
func TestKeySetIsReadBack(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	document, err := oidcdiscovery.EncodeKeySet([]byte(publicPEM(t, key)))
	if err != nil {
		t.Fatal(err)
	}

	keys, err := oidcdiscovery.ParseKeySet(document)
	ids := slices.Collect(maps.Keys(keys))
	if err != nil || len(ids) != 1 || !keys[ids[0]].Equal(key.Public()) || !strings.Contains(string(document), ids[0]) {
		t.Errorf("%v: %v", ids, err)
	}
}

// TestKeySetsOfOthers: keys of other types are left out, and keys that are not valid are refused.
func TestKeySetsOfOthers(t *testing.T) {
	const zeros = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for document, ok := range map[string]bool{
		`{"keys":[]}`: true,
		`{"keys":[{"kty":"RSA","kid":"a","n":"x","e":"AQAB"}]}`:                                   true,
		`{"keys":[{"kty":"EC","kid":"a","crv":"P-384"}]}`:                                         true,
		`{"keys":[{"kty":"EC","kid":"a","crv":"P-256","use":"enc"}]}`:                             true,
		`{"keys":[{"kty":"EC","kid":"a","crv":"P-256"}]}`:                                         false,
		`{"keys":[{"kty":"EC","kid":"a","crv":"P-256","x":"*","y":"*"}]}`:                         false,
		`{"keys":[{"kty":"EC","kid":"a","crv":"P-256","x":"` + zeros + `","y":"` + zeros + `"}]}`: false,
		`{"keys":`: false,
		strings.Repeat(" ", 1<<20) + `{"keys":[]}`: false,
	} {
		keys, err := oidcdiscovery.ParseKeySet([]byte(document))
		if (err == nil) != ok || len(keys) > 0 {
			t.Errorf("%.80s: %v, %v", document, keys, err)
		}
	}
}

// FuzzParseKeySet: whatever a server sends, the keys are valid.
func FuzzParseKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"EC","kid":"a","crv":"P-256","x":"","y":""}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		keys, err := oidcdiscovery.ParseKeySet(document)
		for id, key := range keys {
			if err != nil || key == nil || key.Curve != elliptic.P256() {
				t.Errorf("key %q: %v", id, err)
			}
		}
	})
}
