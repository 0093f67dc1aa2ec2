// SPDX-License-Identifier: Apache-2.0

package render

import (
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// LaunchHooks returns the launch hooks of an Auto Scaling group.
func LaunchHooks(g *graph.Graph, group *graph.Node) []*graph.Node {
	var out []*graph.Node
	for _, n := range g.Nodes() {
		hook, ok := n.Resource.(awskind.LifecycleHook)
		if ok && hook.Transition == awskind.Launching && hook.Group.Addr() == group.Addr {
			out = append(out, n)
		}
	}

	return out
}
