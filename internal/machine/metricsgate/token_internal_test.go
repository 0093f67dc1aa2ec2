// SPDX-License-Identifier: Apache-2.0

package metricsgate

import (
	"strings"
	"testing"
)

// FuzzParseToken: whatever a caller sends, a token has a signature of the right length, and covers the text before it.
func FuzzParseToken(f *testing.F) {
	f.Add("eyJhbGciOiJFUzI1NiJ9.e30." + strings.Repeat("A", 86))
	f.Add("e30.e30.")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parseToken(text)
		if err == nil && (len(parsed.signature) != 2*coordinate || !strings.HasPrefix(text, parsed.signed+".")) {
			t.Errorf("%+v", parsed)
		}

		if parsed.isSignedBy(nil) {
			t.Error("no key has signed it")
		}
	})
}
