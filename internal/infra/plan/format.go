// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Summary counts what a plan does; a replacement adds one and destroys one.
type Summary struct {
	Add     int `json:"add"`
	Change  int `json:"change"`
	Destroy int `json:"destroy"`
}

// Document is the JSON form of a plan. Fields are added, never renamed, within one FormatVersion.
type Document struct {
	FormatVersion int    `json:"formatVersion"`
	Cluster       string `json:"cluster"`
	// Destroy says that it is the plan of the cluster's deletion.
	Destroy bool `json:"destroy,omitempty"`
	// MachineStore are the keys of the objects that are published for machines before anything is made.
	MachineStore []string `json:"machineStore"`
	// Steps in an order that works; they are carried out as many at a time as they allow.
	Steps   []Step  `json:"steps"`
	Summary Summary `json:"summary"`
}

// Summary counts p's steps.
func (p Plan) Summary() Summary {
	var s Summary
	for _, st := range p.Steps {
		switch st.Action {
		case Create:
			s.Add++
		case Update:
			s.Change++
		case Replace:
			s.Add++
			s.Destroy++
		case Delete:
			s.Destroy++
		}
	}

	return s
}

// String renders s as the last line of a plan.
func (s Summary) String() string {
	return fmt.Sprintf("Plan: %d to add, %d to change, %d to destroy", s.Add, s.Change, s.Destroy)
}

// Document returns p in its JSON form.
func (p Plan) Document(cluster string) Document {
	steps := p.Steps
	if steps == nil {
		steps = []Step{}
	}

	return Document{
		FormatVersion: FormatVersion,
		Cluster:       cluster,
		MachineStore:  []string{},
		Steps:         steps,
		Summary:       p.Summary(),
	}
}

// Print writes p for a person: one line a step, one line below it a change, and the summary.
func (p Plan) Print(w io.Writer) error {
	var b strings.Builder
	for _, s := range p.Steps {
		b.WriteString(s.String() + "\n")
		for _, c := range s.Changes {
			b.WriteString("      " + c.String() + "\n")
		}
	}

	if p.IsEmpty() {
		b.WriteString("No changes: what exists is what the manifests say.\n")
	} else {
		b.WriteString(p.Summary().String() + "\n")
	}

	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print plan: %w", err)
	}

	return nil
}

// Sign returns the mark in front of a step's line: +, ~, -/+ or -.
func (a Action) Sign() string {
	switch a {
	case Create:
		return "+"
	case Update:
		return "~"
	case Replace:
		return "-/+"
	case Delete:
		return "-"
	}

	return "?"
}

// String renders s as one line, without its changes.
func (s Step) String() string {
	line := fmt.Sprintf("%3s %s", s.Action.Sign(), s.Addr)
	if s.ID != "" {
		line += " (" + s.ID + ")"
	}

	if s.Note != "" {
		line += "  # " + s.Note
	}

	return line
}

// String renders c as "Property: old → new".
func (c Change) String() string {
	line := c.Property + ": " + formatValue(c.Old) + " → " + formatValue(c.New)
	if c.ForcesReplacement {
		line += "  # forces replacement"
	}

	return line
}

// FormatValue renders a value for a person, a long one by its size and hash.
func FormatValue(v any) string { return formatValue(v) }

// formatValue renders a value in at most some 80 characters; a longer one by its size and hash.
func formatValue(v any) string {
	switch x := v.(type) {
	case nil:
		return "(not set)"
	case string:
		if x == Unknown {
			return x
		}
	}

	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}

	const limit = 80
	if len(b) > limit {
		sum := sha256.Sum256(b)
		return fmt.Sprintf("(%d bytes, sha256 %x…)", len(b), sum[:6])
	}

	return string(b)
}
