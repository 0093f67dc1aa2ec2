// SPDX-License-Identifier: Apache-2.0

package agent

import "testing"

func TestParseUnixTimestamp(t *testing.T) {
	for text, want := range map[string]int64{
		"@1763700000\n":                     1763700000,
		"@1763700000.5\n":                   1763700000,
		"@1763700000\nWarning: of stderr\n": 1763700000,
		"":                                  0, // the unit has not started
		"\n":                                0,
		"1763700000":                        0,
		"n/a":                               0,
	} {
		got, ok := parseUnixTimestamp(text)
		if ok != (want != 0) || ok && got.Unix() != want {
			t.Errorf("%q is %v, %t, want %d", text, got, ok, want)
		}
	}
}
