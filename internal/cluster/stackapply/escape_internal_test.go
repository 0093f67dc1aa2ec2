// SPDX-License-Identifier: Apache-2.0

package stackapply

import (
	"encoding/json"
	"testing"
)

// TestEscapedTemplates: a template without characters that GetTemplate would not return is the same JSON text.
func TestEscapedTemplates(t *testing.T) {
	const text = `{"tag":"café ☺ 🚀 \n \u00e9"}`
	escaped := escapeNonASCII(text)
	for _, r := range escaped {
		if r > 0x7f {
			t.Errorf("%q has %q", escaped, r)
		}
	}

	var want, got map[string]string
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}

	if err := json.Unmarshal([]byte(escaped), &got); err != nil || got["tag"] != want["tag"] {
		t.Errorf("%q is %q, %v", escaped, got, err)
	}
}
