// SPDX-License-Identifier: Apache-2.0

package plainerror

import (
	"strings"
	"unicode"
)

// IsTerminalControl reports whether a terminal may obey a character: a control character other than a tab or line feed, or
// one that changes the direction of text.
func IsTerminalControl(r rune) bool {
	return r != '\t' && r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
}

// Printable returns text without control characters, except tabs and line feeds. Text that a machine wrote, such as
// its log or the reason of a failure, could otherwise move the cursor of an operator's terminal, hide lines or set its
// title. The characters that change the direction of text are left out for the same reason.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if IsTerminalControl(r) {
			return -1
		}

		return r
	}, text)
}
