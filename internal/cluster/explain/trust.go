// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"
)

// describeTrust returns the subject, the end and the SHA-256 fingerprint of each certificate of a text, as
// 'openssl x509 -fingerprint -sha256' computes it, so that an authority that somebody added stands out. Of anything
// else it returns the size and the hash.
func describeTrust(text string) string {
	var out []string

	for rest := []byte(strings.TrimSpace(text)); len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return summarize(text)
		}

		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return summarize(text)
		}

		out = append(out, fmt.Sprintf(
			"%s until %s, sha256 %x",
			certificate.Subject,
			certificate.NotAfter.UTC().Format(time.DateOnly),
			sha256.Sum256(certificate.Raw),
		))
	}

	return strings.Join(out, "; ")
}
