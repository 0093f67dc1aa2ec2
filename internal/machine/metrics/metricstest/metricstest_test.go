// SPDX-License-Identifier: Apache-2.0

package metricstest_test

import (
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/metrics/metricstest"
)

// TestMetricsIn: names of metrics are told from the rest of an expression.
func TestMetricsIn(t *testing.T) {
	expr := `count by (cluster) (a_b == 1 and c{path="x", y=~"z"}) * 2 <= max(d offset 1h) or rate(e_bucket[5m]) > 0.25 unless time() > f`
	if got, want := metricstest.MetricsIn(expr), []string{"a_b", "c", "d", "e_bucket", "f"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
