// SPDX-License-Identifier: Apache-2.0

package asset_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

func TestNewestPatch(t *testing.T) {
	available := []string{"1.36.3", "1.35.4", "1.36.11", "1.36.12-rc.1", "1.3.7"}
	for given, want := range map[string]string{
		"1.36":   "1.36.11",
		"1.35":   "1.35.4",
		"1.3":    "1.3.7",
		"1.34":   "1.34",
		"1.36.0": "1.36.0",
		"1":      "1",
		"":       "",
		"v1.36":  "v1.36",
	} {
		if got := asset.NewestPatch(given, available); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}
