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

// tokenIssuer issues session tokens that carry their own end and a seal: nothing is kept, so nothing has to be cleaned up.
type tokenIssuer struct {
	key []byte
}

const (
	saltSize   = 8
	headerSize = 8 + saltSize // the end in Unix nanoseconds, then the salt
	macSize    = 24           // with the head 40 bytes: 54 characters, about as long as EC2's
)

func (t tokenIssuer) newToken(instanceID string, end time.Time) string {
	raw := make([]byte, headerSize, headerSize+macSize)
	binary.BigEndian.PutUint64(raw, uint64(end.UnixNano()))
	_, _ = rand.Read(raw[8:]) // never fails

	return base64.RawURLEncoding.EncodeToString(append(raw, t.computeMAC(raw, instanceID)...))
}

// isValid says whether we issued the token to this instance and it has not ended.
func (t tokenIssuer) isValid(token, instanceID string, now time.Time) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != headerSize+macSize {
		return false
	}

	head := raw[:headerSize]
	seal := raw[headerSize:]
	if !hmac.Equal(seal, t.computeMAC(head, instanceID)) {
		return false
	}

	return uint64(now.UnixNano()) < binary.BigEndian.Uint64(head)
}

func (t tokenIssuer) computeMAC(head []byte, instanceID string) []byte {
	mac := hmac.New(sha256.New, t.key)
	mac.Write(head)
	mac.Write([]byte(instanceID))

	return mac.Sum(nil)[:macSize]
}
