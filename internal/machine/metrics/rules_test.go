// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/metrics"
	"github.com/slipway-k8s/slipway/internal/machine/metrics/metricstest"
)

// TestRules: each rule is complete, is in the documentation, and names metrics that the agent has, or etcd's. TestRealEtcdMetrics of the
// agent compares the latter with a real etcd.
func TestRules(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/operations/etcd.md")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, f := range metrics.Families() {
		known = append(known, f.Name)
		if !strings.Contains(string(docs), "`"+f.Name) {
			t.Errorf("docs/operations/etcd.md does not name the metric %s", f.Name)
		}
	}
	seen := map[string]bool{}
	for _, r := range metricstest.ReadRules(t, "../../../examples/monitoring/etcd-rules.yaml") {
		if seen[r.Alert] {
			t.Errorf("%s is there twice", r.Alert)
		}
		seen[r.Alert] = true
		checkRule(t, r, known)
		if !strings.Contains(string(docs), "| "+r.Alert+" |") {
			t.Errorf("docs/operations/etcd.md does not name the alert %s", r.Alert)
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d rules", len(seen))
	}
}

func checkRule(t *testing.T, r metricstest.Rule, known []string) {
	t.Helper()
	metricstest.CheckRule(t, r)
	names := metricstest.MetricsIn(r.Expr)
	if len(names) == 0 {
		t.Errorf("%s names no metric: %s", r.Alert, r.Expr)
	}
	for _, name := range names {
		if !slices.Contains(known, name) && !strings.HasPrefix(name, "etcd_") {
			t.Errorf("%s: nobody has the metric %s", r.Alert, name)
		}
	}
}
