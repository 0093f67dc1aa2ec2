// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// TestFailedServerExplainsSilence: kubelets and agents that were connected to an API server that hangs are silent until
// they connect to another one. For that time the API server is the cause, not their machines.
func TestFailedServerExplainsSilence(t *testing.T) {
	const server = "api kube-apiserver of i-0c4e1 (control-plane-a)"
	tests := map[string]struct {
		silent time.Duration
		hangs  bool
		want   string // what explains the silence of the worker
	}{
		"its API server hangs":                 {18 * time.Second, true, server},
		"it should have connected to another":  {45 * time.Second, true, ""},
		"every API server works":               {18 * time.Second, false, ""},
		"it has reported through another just": {0, true, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := healthyCluster()
			if tt.hangs {
				measured(&f, 0, func(r *report.Report) { r.APIServer = &report.APIServer{Error: timeout} })
			}
			f.Nodes[3].LeaseRenewed = now.Add(-tt.silent)

			found := false
			for _, c := range health.Evaluate(f).Checks {
				if c.Machine != f.Instances[3].ID || c.Kind != health.KindNode || c.OK {
					continue
				}
				found = true
				if c.CausedBy != tt.want {
					t.Errorf("the silence of the worker is explained by %q, want %q", c.CausedBy, tt.want)
				}
			}
			if found != (tt.silent > 0) {
				t.Errorf("a problem of the worker was found: %v", found)
			}
		})
	}
}
