// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// Cause is whose doing a deviation is.
type Cause string

// The causes.
const (
	// BehindOurBack: neither an apply nor a manifest did it.
	BehindOurBack Cause = "behind our back"
	// Unfinished: an apply or a deletion that did not end may have done it.
	Unfinished Cause = "an apply that did not end"
	// Unrecorded: nothing says what was applied last, so it may also be an edit of a manifest.
	Unrecorded Cause = "unknown: no apply is recorded"
)

// What is how a resource deviates.
type What string

// The ways to deviate.
const (
	Changed    What = "changed"
	Missing    What = "missing"
	Unexpected What = "unexpected"
)

// Deviation is one property of one resource, or a whole resource, that is not as it was applied.
type Deviation struct {
	What    What       `json:"what"`
	Addr    graph.Addr `json:"address"`
	Kind    string     `json:"kind"`
	ID      string     `json:"id,omitempty"`
	Owner   string     `json:"owner,omitempty"` // who made it, if that is known and it was not us
	Field   string     `json:"field,omitempty"` // of what is changed, as in [Change]
	Want    any        `json:"want"`            // null: not set, or all of a resource
	Have    any        `json:"have"`
	Changed Cause      `json:"changedBy"`
}

// Deviations returns what p, the plan that would restore what was applied, says has changed. Tries are the attempts that
// did not end.
func (p Plan) Deviations(tries []Attempt, recorded bool) []Deviation { //nolint:revive // a fact, no mode
	var out []Deviation
	for _, s := range p.Steps {
		d := Deviation{Addr: s.Addr, Kind: s.Kind, ID: s.ID, Changed: cause(s, tries)}
		if !recorded {
			d.Changed = Unrecorded
		}
		switch s.Action {
		case Create:
			d.What = Missing
		case Delete:
			d.What = Unexpected
		case Update, Replace:
			d.What = Changed
			for _, c := range s.Changes {
				d.Field, d.Want, d.Have = c.Property, c.New, c.Old
				out = append(out, d)
			}
			continue
		}
		out = append(out, d)
	}
	return out
}

// cause asks whether an attempt was to touch what s is about. A resource without tags that is not in what was applied has
// no address of its own yet, so any creation of its kind may have been it.
func cause(s Step, tries []Attempt) Cause {
	for _, try := range tries {
		if _, ok := try.Steps[s.Addr]; ok {
			return Unfinished
		}
		if s.Action != Delete || len(s.have.Resource.Kind().Key) == 0 {
			continue
		}
		for addr, action := range try.Steps {
			if action == Create && KindOf(addr) == s.Kind {
				return Unfinished
			}
		}
	}
	return BehindOurBack
}

// KindOf returns the kind that an address begins with.
func KindOf(a graph.Addr) string {
	kind, _, _ := strings.Cut(string(a), "/")
	return kind
}

// Edited says which properties of p's steps a manifest has changed since what was applied: "address property", and just
// the address of what it has added or removed. Everything else in p is drift.
func (p Plan) Edited(applied *graph.Graph) map[string]bool {
	out := map[string]bool{}
	for _, w := range p.wanted {
		n := applied.Node(w.Addr)
		if n == nil {
			out[string(w.Addr)] = true
			continue
		}
		for _, c := range Diff(w.Resource, n.Resource) {
			out[string(w.Addr)+" "+c.Property] = true
		}
	}
	wanted := map[graph.Addr]bool{}
	for _, w := range p.wanted {
		wanted[w.Addr] = true
	}
	for _, n := range applied.Nodes() {
		if !wanted[n.Addr] {
			out[string(n.Addr)] = true
		}
	}
	return out
}
