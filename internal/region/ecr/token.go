// SPDX-License-Identifier: Apache-2.0

package ecr

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// tokenUser is the name of the user that goes with every token.
const tokenUser = "AWS"

// layerLifetime is how long the address of a layer is valid.
const layerLifetime = time.Hour

// token is what a password of the registry says. It is signed and not encrypted: only the region
// reads it.
type token struct {
	Caller  wire.Caller `json:"caller"`
	Expires time.Time   `json:"expires"`
}

// The reasons for which a token is not accepted.
var (
	errNoToken      = errors.New("not a token of this region")
	errTokenExpired = errors.New("the token has expired")
)

// sealToken returns the password that stands for a token.
func sealToken(key []byte, t token) (string, error) {
	body, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("encode a token: %w", err)
	}

	return base64.RawURLEncoding.EncodeToString(body) + "." + sign(key, body), nil
}

// openToken returns the token that a password stands for. The error is errNoToken or
// errTokenExpired.
func openToken(key []byte, password string, now time.Time) (token, error) {
	encoded, signature, _ := strings.Cut(password, ".")
	body, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(key) == 0 || !hmac.Equal([]byte(signature), []byte(sign(key, body))) {
		return token{}, errNoToken
	}

	var t token
	if err := json.Unmarshal(body, &t); err != nil {
		return token{}, errNoToken
	}

	if !now.Before(t.Expires) {
		return token{}, errTokenExpired
	}

	return t, nil
}

// sign returns the signature of a text.
func sign(key, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(body) // never fails

	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// signLayer returns the query of the address of a layer.
func signLayer(key []byte, digest string, now time.Time) string {
	expires := strconv.FormatInt(now.Add(layerLifetime).Unix(), 10)

	return "expires=" + expires + "&signature=" + sign(key, []byte("layer "+digest+" "+expires))
}

// acceptsLayer reports whether the query of a request is that of signLayer, and has not expired.
func acceptsLayer(key []byte, digest string, query map[string][]string, now time.Time) bool {
	value := func(name string) string { return strings.Join(query[name], "") }
	expires, err := strconv.ParseInt(value("expires"), 10, 64)
	want := sign(key, []byte("layer "+digest+" "+value("expires")))

	return err == nil && now.Unix() < expires && hmac.Equal([]byte(value("signature")), []byte(want))
}
