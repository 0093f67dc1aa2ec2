// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// DriftCause is whose doing a deviation is.
type DriftCause string

// The causes.
const (
	// ExternalChange: neither an apply nor a manifest did it.
	ExternalChange DriftCause = "behind our back"
	// UnfinishedApply: an apply or a deletion that did not end may have done it.
	UnfinishedApply DriftCause = "an apply that did not end"
	// NoApplyRecorded: nothing says what was applied last, so it may also be an edit of a manifest.
	NoApplyRecorded DriftCause = "unknown: no apply is recorded"
)

// DeviationType is how a resource deviates.
type DeviationType string

// The ways to deviate.
const (
	DeviationChanged    DeviationType = "changed"
	DeviationMissing    DeviationType = "missing"
	DeviationUnexpected DeviationType = "unexpected"
)

// Deviation is one property of one resource, or a whole resource, that is not as it was applied.
type Deviation struct {
	Type      DeviationType `json:"what"`
	Addr      graph.Addr    `json:"address"`
	Kind      string        `json:"kind"`
	ID        string        `json:"id,omitempty"`
	Owner     string        `json:"owner,omitempty"` // who made it, if that is known and it was not us
	Field     string        `json:"field,omitempty"` // of what is changed, as in [Change]
	Desired   any           `json:"want"`            // null: not set, or all of a resource
	Actual    any           `json:"have"`
	ChangedBy DriftCause    `json:"changedBy"`
}

// Deviations returns what p, the plan that would restore what was applied, says has changed. Tries are the attempts that
// did not end.
func (p Plan) Deviations(tries []Attempt, recorded bool) []Deviation {
	var out []Deviation
	for _, s := range p.Steps {
		d := Deviation{
			Addr:      s.Addr,
			Kind:      s.Kind,
			ID:        s.ID,
			ChangedBy: driftCauseOf(s, tries),
		}
		if !recorded {
			d.ChangedBy = NoApplyRecorded
		}

		switch s.Action {
		case Create:
			d.Type = DeviationMissing
		case Delete:
			d.Type = DeviationUnexpected
		case Update, Replace:
			d.Type = DeviationChanged
			for _, c := range s.Changes {
				d.Field = c.Property
				d.Desired = c.New
				d.Actual = c.Old
				out = append(out, d)
			}

			continue
		}

		out = append(out, d)
	}

	return out
}

// driftCauseOf asks whether an attempt was to touch what s is about. A resource without tags that is not in what was applied has
// no address of its own yet, so any creation of its kind may have been it.
func driftCauseOf(s Step, tries []Attempt) DriftCause {
	for _, try := range tries {
		if _, ok := try.Steps[s.Addr]; ok {
			return UnfinishedApply
		}

		if s.Action != Delete || len(s.actual.Resource.Kind().KeyProperties) == 0 {
			continue
		}

		for addr, action := range try.Steps {
			if action == Create && KindOf(addr) == s.Kind {
				return UnfinishedApply
			}
		}
	}

	return ExternalChange
}

// KindOf returns the kind that an address begins with.
func KindOf(a graph.Addr) string {
	kind, _, _ := strings.Cut(string(a), "/")
	return kind
}

// ManifestChanges says which properties of p's steps a manifest has changed since what was applied: "address property", and just
// the address of what it has added or removed. Everything else in p is drift.
func (p Plan) ManifestChanges(applied *graph.Graph) map[string]bool {
	out := map[string]bool{}
	for _, w := range p.desired {
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
	for _, w := range p.desired {
		wanted[w.Addr] = true
	}

	for _, n := range applied.Nodes() {
		if !wanted[n.Addr] {
			out[string(n.Addr)] = true
		}
	}

	return out
}
