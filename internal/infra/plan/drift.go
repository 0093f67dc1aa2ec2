// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// DriftCause is the probable cause of a deviation.
type DriftCause string

// The causes.
const (
	// ExternalChange is a change that neither an apply nor an edit of a manifest has made.
	ExternalChange DriftCause = "outside slipway"
	// UnfinishedApply is a change that an apply or a deletion may have made before it failed or was killed.
	UnfinishedApply DriftCause = "an unfinished apply"
	// NoApplyRecorded means that no last-applied record exists: the deviation may also be an edit of a
	// manifest.
	NoApplyRecorded DriftCause = "unknown: no apply is recorded"
)

// DeviationType is how a resource deviates.
type DeviationType string

// The types of deviations.
const (
	DeviationChanged    DeviationType = "changed"    // a property has another value
	DeviationMissing    DeviationType = "missing"    // the resource does not exist
	DeviationUnexpected DeviationType = "unexpected" // the resource was not applied
)

// Deviation is one property of one resource, or a whole resource, that differs from what was applied.
type Deviation struct {
	Type DeviationType `json:"what"`
	Addr graph.Addr    `json:"address"`
	Kind string        `json:"kind"`
	// ID is the identity of the existing resource; empty if it is missing.
	ID string `json:"id,omitempty"`
	// Owner is [ActualResource.Owner], if it is known.
	Owner string `json:"owner,omitempty"`
	// Field is the property that differs, as in [Change]; empty if the whole resource is missing or
	// unexpected.
	Field string `json:"field,omitempty"`
	// Desired is the applied value; null: not set, or the whole resource.
	Desired any `json:"want"`
	// Actual is the value in AWS; null: not set, or the whole resource.
	Actual    any        `json:"have"`
	ChangedBy DriftCause `json:"changedBy"`
}

// Deviations returns the drift: p must be the plan that would restore what was applied. attempts are the
// operations that failed or were killed since then. recorded is false if no last-applied record exists.
func (p Plan) Deviations(attempts []Attempt, recorded bool) []Deviation {
	var out []Deviation
	for _, s := range p.Steps {
		d := Deviation{
			Addr:      s.Addr,
			Kind:      s.Kind,
			ID:        s.ID,
			ChangedBy: driftCauseOf(s, attempts),
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

// driftCauseOf returns UnfinishedApply if one of attempts had a step for the resource of s. A resource
// without tags that is not in the last-applied record has no address yet, so the creation of any resource of
// its kind counts.
func driftCauseOf(s Step, attempts []Attempt) DriftCause {
	for _, attempt := range attempts {
		if _, ok := attempt.Steps[s.Addr]; ok {
			return UnfinishedApply
		}

		if s.Action != Delete || len(s.actual.Resource.Kind().KeyProperties) == 0 {
			continue
		}

		for addr, action := range attempt.Steps {
			if action == Create && KindOf(addr) == s.Kind {
				return UnfinishedApply
			}
		}
	}

	return ExternalChange
}

// KindOf returns the name of the kind in an address.
func KindOf(a graph.Addr) string {
	kind, _, _ := strings.Cut(string(a), "/")
	return kind
}

// ManifestChanges returns what the manifests have changed since applied: "address property" for a changed
// property, and the address for an added or removed resource. Everything else in p is drift.
func (p Plan) ManifestChanges(applied *graph.Graph) map[string]bool {
	out := map[string]bool{}
	for _, w := range p.desired {
		n := applied.Node(w.Addr)
		if n == nil {
			out[string(w.Addr)] = true
			continue
		}

		for _, c := range Diff(keepFrom(w.Resource, n.Resource, false), n.Resource) {
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

// SplitDrift splits the steps of p into those that follow from changes of the manifests since applied, and
// those that revert drift. The changes of a step that has both are split, too. A value that AWS assigns anew
// belongs to the part to which a step that it depends on belongs.
func (p Plan) SplitDrift(applied *graph.Graph) (edit, drift []Step) {
	edited := p.ManifestChanges(applied)
	inEdit := map[graph.Addr]bool{}

	for _, s := range p.Steps {
		var ours, others []Change
		for _, c := range s.Changes {
			isOurs := edited[string(s.Addr)+" "+c.Property]
			if c.New == Unknown {
				isOurs = s.dependsOnAny(inEdit)
			}

			if isOurs {
				ours = append(ours, c)
			} else {
				others = append(others, c)
			}
		}

		if isWhole := len(s.Changes) == 0; len(ours) > 0 || isWhole && edited[string(s.Addr)] {
			inEdit[s.Addr] = true
			edit = append(edit, s.withChanges(ours))
		}

		if isWhole := len(s.Changes) == 0; len(others) > 0 || isWhole && !edited[string(s.Addr)] {
			drift = append(drift, s.withChanges(others))
		}
	}

	return edit, drift
}

// dependsOnAny reports whether the resource of s depends directly on one of the addresses.
func (s Step) dependsOnAny(addrs map[graph.Addr]bool) bool {
	return s.desired != nil &&
		slices.ContainsFunc(s.desired.Deps, func(d graph.Addr) bool { return addrs[d] })
}

// withChanges returns s with the given ones of its changes.
func (s Step) withChanges(changes []Change) Step {
	s.Changes = changes
	return s
}
