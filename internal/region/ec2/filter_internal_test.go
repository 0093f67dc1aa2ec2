// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"regexp"
	"strings"
	"testing"
)

// FuzzGlob compares matchGlob with the equivalent regular expression.
func FuzzGlob(f *testing.F) {
	for _, s := range [][2]string{{"a*b", "acb"}, {"?", ""}, {`\*`, "*"}, {"*a*a*", "aa"}, {`\`, `\`}, {"", ""}, {"**", "x"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, s string) {
		var re strings.Builder
		re.WriteString(`(?s)^`)
		for i := 0; i < len(pattern); i++ {
			if pattern[i] >= 0x80 {
				t.Skip("bytes and runes differ")
			}
			switch c := pattern[i]; {
			case c == '*':
				re.WriteString(".*")
			case c == '?':
				re.WriteString(".")
			case c == '\\' && i+1 < len(pattern) && pattern[i+1] < 0x80:
				i++
				re.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
			case c == '\\' && i+1 < len(pattern):
				t.Skip("bytes and runes differ")
			default:
				re.WriteString(regexp.QuoteMeta(string(c)))
			}
		}
		for i := range len(s) {
			if s[i] >= 0x80 {
				t.Skip("bytes and runes differ")
			}
		}
		if want := regexp.MustCompile(re.String() + `$`).MatchString(s); matchGlob(pattern, s) != want {
			t.Errorf("matchGlob(%q, %q) = %v, want %v (%s)", pattern, s, !want, want, re.String())
		}
	})
}
