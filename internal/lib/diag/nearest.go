// SPDX-License-Identifier: Apache-2.0

package diag

import "strings"

// Nearest returns the candidate most similar to given, to suggest it for a misspelled name; "" if none is
// similar. At most a third of the letters may differ; case is ignored.
func Nearest(given string, candidates []string) string {
	best := ""
	least := len(given)/3 + 1
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(given), strings.ToLower(c)); d < least ||
			d == least && best == "" {
			best = c
			least = d
		}
	}

	return best
}

// editDistance returns the Levenshtein distance: the number of letters to insert, delete or replace.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}

			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}

	return row[len(b)]
}
