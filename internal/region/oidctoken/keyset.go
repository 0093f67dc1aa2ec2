// SPDX-License-Identifier: Apache-2.0

package oidctoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// minRSABits is the length of the shortest RSA key that verifies tokens.
const minRSABits = 2048

// KeySet has the public keys of an issuer.
type KeySet struct{ byID map[string]crypto.PublicKey }

// jsonKey is a key of a JSON Web Key Set.
type jsonKey struct {
	Type     string `json:"kty"`
	ID       string `json:"kid"`
	Use      string `json:"use"`
	Modulus  string `json:"n"`
	Exponent string `json:"e"`
	Curve    string `json:"crv"`
	X        string `json:"x"`
	Y        string `json:"y"`
}

// ParseKeySet reads a JSON Web Key Set. It skips keys of other types and uses than signatures with RSA and elliptic
// curves. A key that is not valid, and two keys with the same id, are errors.
func ParseKeySet(document []byte) (KeySet, error) {
	var doc struct {
		Keys []jsonKey `json:"keys"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return KeySet{}, fmt.Errorf("parse the key set: %w", err)
	}

	out := KeySet{byID: map[string]crypto.PublicKey{}}

	for _, k := range doc.Keys {
		key, err := k.publicKey()

		switch {
		case err != nil:
			return KeySet{}, fmt.Errorf("key %q of the key set: %w", k.ID, err)
		case key == nil:
		case out.byID[k.ID] != nil:
			return KeySet{}, fmt.Errorf("the key set has two keys %q", k.ID)
		default:
			out.byID[k.ID] = key
		}
	}

	return out, nil
}

// publicKey returns the key; nil if its type or use is not that of a signature.
func (k jsonKey) publicKey() (crypto.PublicKey, error) {
	switch {
	case k.Use != "" && k.Use != "sig":
		return nil, nil
	case k.Type == "RSA":
		return k.rsaKey()
	case k.Type == "EC":
		return k.ecdsaKey()
	}

	return nil, nil
}

func (k jsonKey) rsaKey() (crypto.PublicKey, error) {
	n, errN := decodeNumber(k.Modulus)
	e, errE := decodeNumber(k.Exponent)
	if err := errors.Join(errN, errE); err != nil {
		return nil, err
	}

	if n.BitLen() < minRSABits || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 {
		return nil, fmt.Errorf("an RSA key needs at least %d bits and an exponent of 31 bits", minRSABits)
	}

	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

func (k jsonKey) ecdsaKey() (crypto.PublicKey, error) {
	curve := map[string]elliptic.Curve{
		"P-256": elliptic.P256(),
		"P-384": elliptic.P384(),
		"P-521": elliptic.P521(),
	}[k.Curve]
	if curve == nil {
		return nil, fmt.Errorf("curve %q is not supported", k.Curve)
	}

	size := (curve.Params().BitSize + 7) / 8
	x, errX := base64.RawURLEncoding.DecodeString(k.X)
	y, errY := base64.RawURLEncoding.DecodeString(k.Y)
	if err := errors.Join(errX, errY); err != nil {
		return nil, err
	}

	if len(x) != size || len(y) != size {
		return nil, fmt.Errorf("the coordinates on %s have %d bytes each", k.Curve, size)
	}

	point := append([]byte{4}, x...) // 4: an uncompressed point

	return ecdsa.ParseUncompressedPublicKey(curve, append(point, y...))
}

func decodeNumber(text string) (*big.Int, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}

	return new(big.Int).SetBytes(b), nil
}
