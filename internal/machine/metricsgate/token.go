// SPDX-License-Identifier: Apache-2.0

package metricsgate

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"time"
)

// algorithm is that of the cluster's tokens: https://www.rfc-editor.org/rfc/rfc7518#section-3.4.
// coordinate is the length of each of the two numbers of a signature.
const (
	algorithm  = "ES256"
	coordinate = 32
)

// token is a parsed token of a service account. Its claims count only if its signature is valid.
type token struct {
	Subject   string   `json:"sub"`
	Audiences []string `json:"aud"`
	// Expires is in seconds since 1970.
	Expires int64 `json:"exp"`

	keyID string
	// signed is what the signature covers.
	signed    string
	signature []byte
}

// errToken is the error of a text that is no token of a service account.
var errToken = errors.New("the text is not a token of a service account")

// parseToken parses the compact form of a token. It does not check the signature.
func parseToken(text string) (token, error) {
	parts := strings.Split(text, ".")
	if len(text) > maxToken || len(parts) != 3 {
		return token{}, errToken
	}

	var header struct {
		Algorithm string   `json:"alg"`
		KeyID     string   `json:"kid"`
		Critical  []string `json:"crit"`
	}

	var out token
	if decodePart(parts[0], &header) != nil || decodePart(parts[1], &out) != nil {
		return token{}, errToken
	}

	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	isKnown := header.Algorithm == algorithm && len(header.Critical) == 0
	if err != nil || !isKnown || len(signature) != 2*coordinate {
		return token{}, errToken
	}

	out.keyID = header.KeyID
	out.signed = parts[0] + "." + parts[1]
	out.signature = signature

	return out, nil
}

func decodePart(part string, v any) error {
	body, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}

	return json.Unmarshal(body, v)
}

// hasEnded reports whether the token is not valid any more, also by a clock that differs a little.
func (t token) hasEnded(now time.Time) bool {
	return now.After(time.Unix(t.Expires, 0).Add(clockDifference))
}

// isSignedBy reports whether the key that the token names has signed it.
func (t token) isSignedBy(keys map[string]*ecdsa.PublicKey) bool {
	key, known := keys[t.keyID]
	if !known {
		return false
	}

	sum := sha256.Sum256([]byte(t.signed))
	r := new(big.Int).SetBytes(t.signature[:coordinate])
	s := new(big.Int).SetBytes(t.signature[coordinate:])

	return ecdsa.Verify(key, sum[:], r, s)
}
