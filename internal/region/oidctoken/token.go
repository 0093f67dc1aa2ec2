// SPDX-License-Identifier: Apache-2.0

// Package oidctoken reads and verifies OpenID Connect tokens (JWTs) with the key sets of their issuers, as STS does:
// with RSA and elliptic-curve signatures only. It does not know IAM, and does no I/O.
package oidctoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	_ "crypto/sha256" // for crypto.Hash
	_ "crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Token is a parsed token. Its claims count only after [Token.Verify].
type Token struct {
	Issuer    string    // iss
	Subject   string    // sub
	Audiences []string  // aud: one or several
	Party     string    // azp, the party that the token was issued to; empty for none
	Expires   time.Time // exp
	NotBefore time.Time // nbf; zero for none
	IssuedAt  time.Time // iat

	algorithm, keyID string
	signed           []byte // what the signature covers
	signature        []byte
}

// ErrMalformed is the error of a text that is not a token.
var ErrMalformed = errors.New("the token is not a valid JWT")

// ErrSignature is the error of a token that no key of the set verifies.
var ErrSignature = errors.New("the signature of the token is not valid")

// audiences is a string or a list of strings.
type audiences []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audiences) UnmarshalJSON(b []byte) error {
	var one *string
	if json.Unmarshal(b, &one) == nil {
		if one != nil { // null is no audience
			*a = audiences{*one}
		}

		return nil
	}

	return json.Unmarshal(b, (*[]string)(a))
}

// seconds is a time in seconds since 1970, which may have a fraction.
type seconds float64

func (s *seconds) time() time.Time {
	if s == nil {
		return time.Time{}
	}

	return time.Unix(int64(*s), 0).UTC()
}

// Parse reads a token in the compact form. Its error is [ErrMalformed] with a reason: also for a token without
// one of the claims iss, sub, aud, exp and iat.
func Parse(text string) (Token, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return Token{}, fmt.Errorf("%w: it has %d parts", ErrMalformed, len(parts))
	}

	var header struct {
		Algorithm string   `json:"alg"`
		KeyID     string   `json:"kid"`
		Critical  []string `json:"crit"`
	}

	var claims struct {
		Issuer    string    `json:"iss"`
		Subject   string    `json:"sub"`
		Audiences audiences `json:"aud"`
		Party     string    `json:"azp"`
		Expires   *seconds  `json:"exp"`
		NotBefore *seconds  `json:"nbf"`
		IssuedAt  *seconds  `json:"iat"`
	}
	if err := errors.Join(decodePart(parts[0], &header), decodePart(parts[1], &claims)); err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}

	signature, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil {
		return Token{}, fmt.Errorf("%w: signature: %w", ErrMalformed, err)
	}

	switch {
	case len(header.Critical) > 0: // extensions that must be understood; there are none
		return Token{}, fmt.Errorf("%w: it has critical extensions", ErrMalformed)
	case claims.Issuer == "", claims.Subject == "", len(claims.Audiences) == 0, claims.Expires == nil, claims.IssuedAt == nil:
		return Token{}, fmt.Errorf("%w: it lacks one of the claims iss, sub, aud, exp and iat", ErrMalformed)
	}

	return Token{
		Issuer:    claims.Issuer,
		Subject:   claims.Subject,
		Audiences: claims.Audiences,
		Party:     claims.Party,
		Expires:   claims.Expires.time(),
		NotBefore: claims.NotBefore.time(),
		IssuedAt:  claims.IssuedAt.time(),
		algorithm: header.Algorithm,
		keyID:     header.KeyID,
		signed:    []byte(parts[0] + "." + parts[1]),
		signature: signature,
	}, nil
}

func decodePart(part string, v any) error {
	b, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return err
	}

	return json.Unmarshal(b, v)
}

// algorithm is a signature algorithm of JWTs.
type algorithm struct {
	hash  crypto.Hash
	curve string // of ECDSA; empty for RSA with PKCS #1 v1.5
}

// findAlgorithm returns the algorithm with a name. The name none, and those with shared secrets, are not known.
func findAlgorithm(name string) (algorithm, bool) {
	a, ok := map[string]algorithm{
		"RS256": {hash: crypto.SHA256},
		"RS384": {hash: crypto.SHA384},
		"RS512": {hash: crypto.SHA512},
		"ES256": {hash: crypto.SHA256, curve: "P-256"},
		"ES384": {hash: crypto.SHA384, curve: "P-384"},
		"ES512": {hash: crypto.SHA512, curve: "P-521"},
	}[name]

	return a, ok
}

// Verify returns nil if the key of the set that the token names has signed it, and else [ErrSignature] with a reason.
func (t Token) Verify(keys KeySet) error {
	a, ok := findAlgorithm(t.algorithm)
	if !ok {
		return fmt.Errorf("%w: algorithm %q is not supported", ErrSignature, t.algorithm)
	}

	key, ok := keys.byID[t.keyID]
	if !ok || t.keyID == "" {
		return fmt.Errorf("%w: the issuer has no key %q", ErrSignature, t.keyID)
	}

	h := a.hash.New()
	h.Write(t.signed)
	sum := h.Sum(nil)

	switch k := key.(type) {
	case *rsa.PublicKey:
		if a.curve == "" && rsa.VerifyPKCS1v15(k, a.hash, sum, t.signature) == nil {
			return nil
		}

	case *ecdsa.PublicKey:
		if k.Params().Name == a.curve && verifyECDSA(k, sum, t.signature) {
			return nil
		}
	}

	return fmt.Errorf("%w: key %q has not signed it with %s", ErrSignature, t.keyID, t.algorithm)
}

// verifyECDSA verifies a signature in the form of JWTs: both numbers with the length of the curve's order.
func verifyECDSA(k *ecdsa.PublicKey, sum, signature []byte) bool {
	size := (k.Params().BitSize + 7) / 8
	if len(signature) != 2*size {
		return false
	}

	r := new(big.Int).SetBytes(signature[:size])
	s := new(big.Int).SetBytes(signature[size:])

	return ecdsa.Verify(k, sum, r, s)
}
