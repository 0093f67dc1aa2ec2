// SPDX-License-Identifier: Apache-2.0

package cost_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/cost"
)

func FuzzParseTable(f *testing.F) {
	f.Add(testTable)
	f.Add("* a 1 hour s")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := cost.ParseTable(text); err != nil && !strings.Contains(err.Error(), "line ") {
			t.Errorf("an error without its line: %v", err)
		}
	})
}
