// SPDX-License-Identifier: Apache-2.0

package plainerror_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain text, äöü 漢字\n\tnext":         "plain text, äöü 漢字\n\tnext",
		"\x1b[2J\x1b[1;1Hcluster is healthy": "[2J[1;1Hcluster is healthy",
		"\x1b]0;title\x07":                   "]0;title",
		"over\rwritten\x08":                  "overwritten",
		"\u009b31mred":                       "31mred",
		"abc\u202egnp.exe":                   "abcgnp.exe",
		"nul\x00, del\x7f":                   "nul, del",
	} {
		if got := plainerror.Printable(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
