// SPDX-License-Identifier: Apache-2.0

package cli

import "strings"

// shellQuote quotes s for a POSIX shell where it needs it.
func shellQuote(s string) string {
	safe := strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune(
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,",
			r,
		)
	}) < 0
	if safe && s != "" {
		return s
	}

	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
