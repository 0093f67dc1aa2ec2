// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// Pending is a property that only a rollout changes, and that has another value than the newest one.
type Pending struct {
	// Addr is the address of the resource.
	Addr graph.Addr `json:"address"`
	// Property is its path, as in [Change].
	Property string `json:"property"`
	// Old is the value in AWS, which the plan does not change.
	Old any `json:"old"`
	// New is the value that a rollout sets.
	New any `json:"new"`
}

// String renders p as "address: property: old → new".
func (p Pending) String() string {
	return fmt.Sprintf("%s: %s", p.Addr, Change{Property: p.Property, Old: p.Old, New: p.New})
}

// keepFrom returns a desired resource with the properties that only a rollout changes as they are, unless it is released.
func keepFrom(desired, existing graph.Resource, released bool) graph.Resource {
	r, isRolledOut := desired.(graph.RolledOut)
	if !isRolledOut || released {
		return desired
	}

	return r.KeepFrom(existing)
}

// findPending returns the properties that a rollout has to change. Of a value that becomes known only when the plan is
// applied, its step tells.
func findPending(addr graph.Addr, newest, kept graph.Resource) []Pending {
	if _, isRolledOut := newest.(graph.RolledOut); !isRolledOut {
		return nil
	}

	var out []Pending
	for _, c := range Diff(newest, kept) {
		if c.New != Unknown {
			out = append(out, Pending{Addr: addr, Property: c.Property, Old: c.Old, New: c.New})
		}
	}

	return out
}

// findReleased returns the resources that cannot keep what only a rollout changes: what they keep refers to a resource that
// the plan deletes. Example: a version of a launch template with a key pair that the manifests do not have any more.
func (p Plan) findReleased(desired *graph.Graph) map[graph.Addr]bool {
	gone := map[string]bool{}
	for _, s := range p.Steps {
		if s.Action == Delete || s.Action == Replace && !s.keepsIdentity() {
			gone[s.ID] = true
		}
	}

	outdated := map[graph.Addr]bool{}
	for _, s := range p.Steps {
		if s.Action == Update && slices.ContainsFunc(s.Changes, func(c Change) bool { return mentionsAny(c.Old, gone) }) {
			outdated[s.Addr] = true
		}
	}

	out := map[graph.Addr]bool{}
	for _, n := range desired.Nodes() {
		_, isRolledOut := n.Resource.(graph.RolledOut)
		if isRolledOut && slices.ContainsFunc(n.Deps, func(d graph.Addr) bool { return outdated[d] }) {
			out[n.Addr] = true
		}
	}

	return out
}

// keepsIdentity reports whether the resource that replaces another one gets the same identity, which is its name then.
func (s Step) keepsIdentity() bool {
	return slices.ContainsFunc(graph.Fields(s.desired.Resource), func(f graph.Field) bool { return f.Value == s.ID })
}

// mentionsAny reports whether a value is one of the ids, or a list with one of them.
func mentionsAny(value any, ids map[string]bool) bool {
	switch v := value.(type) {
	case string:
		return ids[v]
	case []any:
		return slices.ContainsFunc(v, func(x any) bool { return mentionsAny(x, ids) })
	}

	return false
}
