// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
)

// TestWarmMachinesAreNotMissed: a machine that waits in a warm pool neither counts for its group nor lacks a
// node.
func TestWarmMachinesAreNotMissed(t *testing.T) {
	waiting := health.Instance{ID: "i-1", Group: "workers", State: "running", Reports: []health.StageReport{{Stage: "warm", State: "running"}}}
	r := health.Evaluate(health.Facts{Groups: []health.Group{{Name: "workers", Size: 1}}, Instances: []health.Instance{waiting}})
	for _, c := range r.Checks {
		if c.Kind == "machine" && c.Name == "workers" && c.OK || c.Kind == "node" {
			t.Errorf("%+v", c)
		}
	}
}
