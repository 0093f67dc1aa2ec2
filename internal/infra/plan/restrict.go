// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// OnlyCreating returns the plan that creates the missing resources at some addresses and does nothing else. What they depend
// on must exist. desired is the graph that p was computed from.
func (p Plan) OnlyCreating(desired *graph.Graph, addrs ...graph.Addr) Plan {
	out := Plan{actual: p.actual, desired: p.desired}
	for _, s := range p.Steps {
		if s.Action == Create && slices.Contains(addrs, s.Addr) {
			out.Steps = append(out.Steps, s)
		}
	}

	_ = orderOperations(&out, desired) // creations alone have no cycle

	return out
}
