// SPDX-License-Identifier: Apache-2.0

package render

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// Rollout is the order in which the machines of a graph are created and replaced.
type Rollout struct {
	// Slots lists the Auto Scaling groups of the control-plane slots, one machine each. They are updated one
	// after another: replacing two at once would lose etcd's quorum.
	Slots []graph.Addr
	// Groups lists the other Auto Scaling groups, which come after the slots.
	Groups []graph.Addr
}

// RolloutOf returns the groups of g whose machines signal that they are healthy. Nothing waits for other
// groups.
func RolloutOf(g *graph.Graph) Rollout {
	signalled := map[graph.Addr]bool{}
	for _, n := range g.Nodes() {
		for _, f := range graph.Fields(n.Resource) {
			collectSignalled(f.Value, signalled)
		}
	}

	var out Rollout

	for _, n := range g.Nodes() {
		switch {
		case !n.Resource.Kind().StartsMachines || !signalled[n.Addr]:
		case graph.TagValue(n.Resource, tagSlot) != "":
			out.Slots = append(out.Slots, n.Addr)
		default:
			out.Groups = append(out.Groups, n.Addr)
		}
	}

	return out
}

// collectSignalled adds the addresses of the groups whose machines signal, according to placeholders in v.
func collectSignalled(v any, signalled map[graph.Addr]bool) {
	switch x := v.(type) {
	case graph.Text:
		for _, p := range x.Parts() {
			addr, _, rest := graph.FindSignals(p.Literal)
			for addr != "" {
				signalled[addr] = true
				addr, _, rest = graph.FindSignals(rest)
			}
		}

	case map[string]any:
		for _, e := range x {
			collectSignalled(e, signalled)
		}
	}
}
