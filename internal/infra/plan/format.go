// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Summary counts the steps of a plan; a replacement counts as one added and one destroyed.
type Summary struct {
	Add     int `json:"add"`     // resources to create
	Change  int `json:"change"`  // resources to change in place
	Destroy int `json:"destroy"` // resources to delete
}

// Document is the JSON form of a plan. Fields are added, never renamed, within one FormatVersion.
type Document struct {
	// FormatVersion is the constant of that name.
	FormatVersion int `json:"formatVersion"`
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Destroy is true for the plan of the cluster's deletion. Set by the caller.
	Destroy bool `json:"destroy,omitempty"`
	// MachineStore lists the keys of the objects that apply publishes for machines before the first step. Set
	// by the caller.
	MachineStore []string `json:"machineStore"`
	// Steps lists the steps in a valid order; apply runs independent steps concurrently.
	Steps   []Step  `json:"steps"`
	Summary Summary `json:"summary"`
	// MonthlyCost is the cost of the cluster before and after the plan, at list prices; absent where it is not
	// computed. Set by the caller.
	MonthlyCost MonthlyCost `json:"monthlyCost,omitzero"`
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

// Print writes p as text: a line for each step, an indented line for each change, and the summary.
func (p Plan) Print(w io.Writer) error {
	var b strings.Builder
	for _, s := range p.Steps {
		b.WriteString(s.String() + "\n")
		for _, c := range s.Changes {
			b.WriteString("      " + c.String() + "\n")
		}
	}

	if p.IsEmpty() {
		b.WriteString("No changes: AWS matches the manifests.\n")
	} else {
		b.WriteString(p.Summary().String() + "\n")
	}

	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print plan: %w", err)
	}

	return nil
}

// Sign returns the symbol at the start of a step's line: +, ~, -/+ or -.
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

// FormatValue renders a value as JSON, or as its size and hash if that is longer than 80 bytes.
func FormatValue(v any) string { return formatValue(v) }

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
