// SPDX-License-Identifier: Apache-2.0

package oidcdiscovery

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// ParseKeySet reads the JSON Web Key Set of a cluster, and returns its keys by their ids. It skips
// keys of other types than those of clusters, which are on the curve P-256. A key that is not
// valid, and a set that is too large, are errors.
func ParseKeySet(document []byte) (map[string]*ecdsa.PublicKey, error) {
	if len(document) > maxDocument {
		return nil, errors.New("the key set is too large")
	}

	var set struct {
		Keys []key `json:"keys"`
	}
	if err := json.Unmarshal(document, &set); err != nil {
		return nil, fmt.Errorf("parse the key set: %w", err)
	}

	out := map[string]*ecdsa.PublicKey{}

	for _, k := range set.Keys {
		if k.Type != "EC" || k.Curve != "P-256" || k.Use != "" && k.Use != "sig" {
			continue
		}

		public, err := k.publicKey()
		if err != nil {
			return nil, fmt.Errorf("key %q of the key set: %w", k.ID, err)
		}

		out[k.ID] = public
	}

	return out, nil
}

// publicKey returns the key.
func (k key) publicKey() (*ecdsa.PublicKey, error) {
	point := []byte{4} // an uncompressed point
	for _, text := range []string{k.X, k.Y} {
		coordinate, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}

		if len(coordinate) != 32 {
			return nil, errors.New("its coordinates have not 32 bytes each")
		}

		point = append(point, coordinate...)
	}

	return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
}
