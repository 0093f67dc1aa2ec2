// SPDX-License-Identifier: Apache-2.0

package render

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// Rollout says in which order the machines of a graph are made and changed.
type Rollout struct {
	// Slots of the control plane, one machine each, one after another: two at once would cost etcd's quorum.
	Slots []graph.Addr
	// Groups are what else starts machines; they come after the slots.
	Groups []graph.Addr
}

// RolloutOf finds the machines of g that say when they are well. Others are not waited for.
func RolloutOf(g *graph.Graph) Rollout {
	told := map[graph.Addr]bool{}
	for _, n := range g.Nodes() {
		for _, f := range graph.Fields(n.Resource) {
			collectSignalled(f.Value, told)
		}
	}

	var out Rollout

	for _, n := range g.Nodes() {
		switch {
		case !n.Resource.Kind().StartsMachines || !told[n.Addr]:
		case graph.TagValue(n.Resource, tagSlot) != "":
			out.Slots = append(out.Slots, n.Addr)
		default:
			out.Groups = append(out.Groups, n.Addr)
		}
	}

	return out
}

// collectSignalled notes whose machines v tells to signal.
func collectSignalled(v any, told map[graph.Addr]bool) {
	switch x := v.(type) {
	case graph.Text:
		for _, p := range x.Parts() {
			addr, _, rest := graph.FindSignals(p.Literal)
			for addr != "" {
				told[addr] = true
				addr, _, rest = graph.FindSignals(rest)
			}
		}

	case map[string]any:
		for _, e := range x {
			collectSignalled(e, told)
		}
	}
}
