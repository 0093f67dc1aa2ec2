// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// Summary counts the steps of a plan; a replacement counts as one added and one destroyed.
type Summary struct {
	Add     int `json:"add"`     // resources to create
	Change  int `json:"change"`  // resources to change in place
	Destroy int `json:"destroy"` // resources to delete
	// Publish counts the objects that are published for machines. Set by the caller.
	Publish int `json:"publish"`
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
	// Unsigned lists the documents in the state store that nobody has signed and that apply signs, sorted by key. Absent:
	// they are signed. Set by the caller.
	Unsigned []UnsignedDocument `json:"unsigned,omitempty"`
	// Steps lists the steps in a valid order; apply runs independent steps concurrently.
	Steps []Step `json:"steps"`
	// Pending lists what a rolling update has to change besides. Absent: nothing.
	Pending []Pending `json:"pending,omitempty"`
	Summary Summary   `json:"summary"`
	// MonthlyCost is the cost of the cluster before and after the plan, at list prices; absent where it is not
	// computed. Set by the caller.
	MonthlyCost MonthlyCost `json:"monthlyCost,omitzero"`
}

// UnsignedDocument is a document in the state store that nobody has signed.
type UnsignedDocument struct {
	// Key of the document.
	Key string `json:"key"`
	// SHA256 of the document, in hexadecimal. Empty: the caller may not read it.
	SHA256 string `json:"sha256"`
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
	line := fmt.Sprintf("Plan: %d to add, %d to change, %d to destroy", s.Add, s.Change, s.Destroy)

	switch s.Publish {
	case 0:
		return line
	case 1:
		return line + ", 1 object to publish"
	}

	return fmt.Sprintf("%s, %d objects to publish", line, s.Publish)
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
		Pending:       p.Pending,
		Summary:       p.Summary(),
	}
}

// Print writes p as text: its steps, and the summary with the number of objects that are published.
func (p Plan) Print(w io.Writer, publish int) error {
	summary := p.Summary()
	summary.Publish = publish
	end := summary.String()
	briefly := p.OnlyAdds()

	switch {
	case p.IsEmpty() && publish == 0:
		end = "No changes: AWS matches the manifests."
	case briefly:
		end += "; interrupts nothing"
	}

	if _, err := io.WriteString(w, formatSteps(p.Steps, briefly)+formatPending(p.Pending)+end+"\n"); err != nil {
		return fmt.Errorf("print plan: %w", err)
	}

	return nil
}

// formatPending renders what a rollout has to change, a line each.
func formatPending(pending []Pending) string {
	var b strings.Builder
	for _, x := range pending {
		b.WriteString("    " + x.String() + "  # waits for a rolling update\n")
	}

	return b.String()
}

// FormatSteps renders steps as text: a line for each step, and indented lines for its content, its changes and
// their settings. Settings that are the same as those of an earlier step are not repeated.
func FormatSteps(steps []Step) string { return formatSteps(steps, false) }

// formatSteps is [FormatSteps]. With briefly, the lines of steps that only create do not say that they interrupt nothing.
func formatSteps(steps []Step, briefly bool) string {
	var b strings.Builder
	shown := map[string]graph.Addr{}

	for _, s := range steps {
		if briefly && isQuietCreation(s) {
			s.EffectText = ""
		}

		b.WriteString(s.String() + "\n")
		if len(s.Content) > 1 {
			for _, line := range s.Content {
				b.WriteString("      " + line + "\n")
			}
		}

		for _, c := range s.Changes {
			b.WriteString("      " + c.String() + "\n")
			formatSettings(&b, s, c, shown)
		}
	}

	return b.String()
}

// OnlyAdds reports whether there are steps, and all only create and interrupt nothing. The summary says so then, instead of
// each line.
func (p Plan) OnlyAdds() bool {
	return !p.IsEmpty() && !slices.ContainsFunc(p.Steps, func(s Step) bool { return !isQuietCreation(s) })
}

// isQuietCreation reports whether s creates a resource and interrupts nothing.
func isQuietCreation(s Step) bool { return s.Action == Create && s.Effect == NoEffect }

// maxShownSettings limits the settings that are shown of one change. The JSON form has all.
const maxShownSettings = 12

// formatSettings writes the settings of c. shown has the address of the first step with the same settings.
func formatSettings(b *strings.Builder, s Step, c Change, shown map[string]graph.Addr) {
	if len(c.Settings) == 0 {
		return
	}

	var lines []string
	for _, x := range c.Settings {
		lines = append(lines, "        "+x.String()+"\n")
	}

	key := c.Property + strings.Join(lines, "")
	if first, ok := shown[key]; ok && len(lines) > 1 {
		fmt.Fprintf(b, "        the same as of %s\n", first)
		return
	}

	shown[key] = s.Addr
	if rest := len(lines) - maxShownSettings; rest > 1 {
		lines = append(lines[:maxShownSettings], fmt.Sprintf("        and %d more, see -o json\n", rest))
	}

	b.WriteString(strings.Join(lines, ""))
}

// String renders x as "setting: old → new".
func (x Setting) String() string {
	line := x.Setting + ": " + formatValue(x.Old) + " → " + formatValue(x.New)
	if x.Effect != "" {
		line += "  # " + x.Effect
	}

	return line
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

	if len(s.Content) == 1 {
		line += ": " + s.Content[0]
	}

	remarks := []string{s.Note}
	if s.Action != Update && s.EffectText != s.Note { // the changes of an update say it
		remarks = append(remarks, s.EffectText)
	}

	if text := joinNonEmpty(remarks); text != "" {
		line += "  # " + text
	}

	return line
}

// joinNonEmpty joins the texts that are not empty.
func joinNonEmpty(texts []string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; ")
}

// String renders c as "Property: old → new".
func (c Change) String() string {
	line := c.Property + ": " + formatValue(c.Old) + " → " + formatValue(c.New)
	if len(c.Settings) > 0 {
		line = c.Property + ":"
	}

	remarks := []string{c.EffectText}
	if c.ForcesReplacement {
		remarks = []string{"forces replacement"}
	}

	if text := joinNonEmpty(remarks); text != "" {
		line += "  # " + text
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
