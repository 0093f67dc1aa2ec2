// SPDX-License-Identifier: Apache-2.0

package imds

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// tokenIssuer issues session tokens that contain their expiry and a MAC, so that no state is kept.
type tokenIssuer struct {
	key []byte
}

const (
	saltSize   = 8
	headerSize = 8 + saltSize // the expiry in Unix nanoseconds, then the salt
	macSize    = 24           // header and MAC have 40 bytes: 54 characters, similar to EC2's tokens
)

func (t tokenIssuer) newToken(instanceID string, expiry time.Time) string {
	raw := make([]byte, headerSize, headerSize+macSize)
	binary.BigEndian.PutUint64(raw, uint64(expiry.UnixNano()))
	_, _ = rand.Read(raw[8:]) // never fails

	return base64.RawURLEncoding.EncodeToString(append(raw, t.computeMAC(raw, instanceID)...))
}

// isValid reports whether the token was issued to this instance and has not expired.
func (t tokenIssuer) isValid(token, instanceID string, now time.Time) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != headerSize+macSize {
		return false
	}

	header := raw[:headerSize]
	mac := raw[headerSize:]
	if !hmac.Equal(mac, t.computeMAC(header, instanceID)) {
		return false
	}

	return uint64(now.UnixNano()) < binary.BigEndian.Uint64(header)
}

func (t tokenIssuer) computeMAC(header []byte, instanceID string) []byte {
	mac := hmac.New(sha256.New, t.key)
	mac.Write(header)
	mac.Write([]byte(instanceID))

	return mac.Sum(nil)[:macSize]
}
