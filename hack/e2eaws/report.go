// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// The results of a step.
const (
	resultPassed  = "passed"
	resultFailed  = "failed"
	resultSkipped = "skipped" // it needs what this run does not have
	resultNotRun  = "not run" // an earlier step failed
)

// report is what a run has found. It has neither the account's id nor secrets, so that it can be attached to a bug
// report.
type report struct {
	// ID of the run.
	ID runID `json:"id"`
	// Result is resultPassed or resultFailed.
	Result string `json:"result"`
	// Environment is where and with what the steps ran.
	Environment environment `json:"environment"`
	// Cost is what the plan says; nil before the plan.
	Cost *costEstimate `json:"cost,omitempty"`
	// Steps in their order.
	Steps []stepReport `json:"steps"`
	// Differences from the local region, one a line.
	Differences []string `json:"differences"`
	// Sweep is what was left; nil if it has not ended.
	Sweep *sweepReport `json:"sweep,omitempty"`
}

// environment is where and with what a run ran.
type environment struct {
	// Started is when the run began.
	Started time.Time `json:"started"`
	// Account is the masked id of the account.
	Account string `json:"account"`
	// Region is the AWS region, and Endpoint AWS or the URL of an endpoint.
	Region   string `json:"region"`
	Endpoint string `json:"endpoint"`
	// Slipway is the version of the program with that of Go and the platform.
	Slipway string `json:"slipway"`
	// Topology is ha or single, and Machines whether machines boot.
	Topology string `json:"topology"`
	Machines bool   `json:"machines"`
	// TimeLimit of the steps before the deletion, such as 45m0s.
	TimeLimit string `json:"timeLimit"`
}

// stepReport is the result of a step.
type stepReport struct {
	// Name of the step, such as apply.
	Name string `json:"name"`
	// Result is one of the results of a step.
	Result string `json:"result"`
	// Reason why it failed, was skipped or did not run.
	Reason string `json:"reason,omitempty"`
	// Command is the last one that the step ran, without the path of the program.
	Command string `json:"command,omitempty"`
	// Seconds that it took.
	Seconds float64 `json:"seconds"`
	// Calls to AWS; nil if the command does not print them.
	Calls *callCount `json:"calls,omitempty"`
	// Warnings that the command printed.
	Warnings []string `json:"warnings,omitempty"`
	// Output has the last lines of a failed command.
	Output string `json:"output,omitempty"`
}

// sweepReport is what was left of a run, and what became of it.
type sweepReport struct {
	// LeftByDelete are resources that 'slipway delete cluster' has left although it ended without an error.
	LeftByDelete []string `json:"leftByDelete"`
	// Left are resources that could not be deleted, each with the reason.
	Left []string `json:"left"`
	// Scheduled are the keys that AWS deletes later, with their dates. They cost nothing.
	Scheduled []string `json:"scheduled"`
	// TagIndex is what the Resource Groups Tagging API says about the tag of the run.
	TagIndex string `json:"tagIndex"`
}

// isClean reports whether nothing is left.
func (s sweepReport) isClean() bool { return len(s.Left) == 0 }

// decideResult sets the result of the whole run.
func (r *report) decideResult() {
	r.Result = resultPassed
	for _, step := range r.Steps {
		if step.Result == resultFailed {
			r.Result = resultFailed
		}
	}

	if r.Sweep == nil || !r.Sweep.isClean() || len(r.Sweep.LeftByDelete) > 0 {
		r.Result = resultFailed
	}
}

// writeReport writes the report to the directory of a run, for programs and for people.
func (r *report) writeReport(directory string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the report of run %s: %w", r.ID, err)
	}

	for name, content := range map[string]string{"report.json": string(text) + "\n", "report.txt": r.formatText()} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("write the report of run %s: %w", r.ID, err)
		}
	}

	return nil
}

// writeSweep writes the report of a later sweep next to that of the run.
func (r *report) writeSweep(directory string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(directory, "sweep.json"), append(text, '\n'), 0o644)
	}

	if err != nil {
		return fmt.Errorf("write the report of the sweep of run %s: %w", r.ID, err)
	}

	return nil
}

// formatText returns the report for people.
func (r *report) formatText() string {
	var b strings.Builder
	e := r.Environment
	fmt.Fprintf(&b, "run %s: %s\n", r.ID, r.Result)
	fmt.Fprintf(&b, "started %s in account %s, %s, at %s\n",
		e.Started.Format(time.RFC3339), e.Account, e.Region, e.Endpoint)
	fmt.Fprintf(&b, "slipway %s; topology %s; machines boot: %t; time limit %s\n", e.Slipway, e.Topology, e.Machines, e.TimeLimit)
	if r.Cost != nil {
		fmt.Fprintln(&b, r.Cost.describeCost())
	}

	b.WriteString("\n" + r.formatSteps())
	fmt.Fprintf(&b, "\n%s\n", r.countSteps())
	writeList(&b, "differences from the local region", r.Differences)
	if r.Sweep != nil {
		writeList(&b, "left by 'slipway delete cluster', deleted by the sweep", r.Sweep.LeftByDelete)
		writeList(&b, "left in AWS", r.Sweep.Left)
		writeList(&b, "deleted by AWS later", r.Sweep.Scheduled)
		fmt.Fprintf(&b, "\nResource Groups Tagging API: %s\n", r.Sweep.TagIndex)
	}

	for _, step := range r.Steps {
		if step.Output != "" {
			fmt.Fprintf(&b, "\n--- %s: slipway %s\n%s", step.Name, step.Command, step.Output)
		}
	}

	return b.String()
}

// formatSteps returns the table of the steps.
func (r *report) formatSteps() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "STEP\tRESULT\tSECONDS\tCALLS\tCHANGING\tNOTE")
	for _, step := range r.Steps {
		all, changing, note := "-", "-", step.Reason
		if step.Calls != nil {
			all = strconv.Itoa(step.Calls.All)
			changing = strconv.Itoa(step.Calls.Changing)
			note = cmp.Or(note, step.Calls.Retries)
		}

		fmt.Fprintf(table, "%s\t%s\t%.1f\t%s\t%s\t%s\n", step.Name, step.Result, step.Seconds, all, changing, firstLine(note))
	}

	_ = table.Flush() // a strings.Builder does not fail

	return b.String()
}

// countSteps returns the numbers of steps by result, and the reasons of skipped ones.
func (r *report) countSteps() string {
	counts := map[string]int{}
	reasons := map[string]int{}
	for _, step := range r.Steps {
		counts[step.Result]++
		if step.Result == resultSkipped {
			reasons[step.Reason]++
		}
	}

	var line strings.Builder
	fmt.Fprintf(&line, "steps: %d passed, %d failed, %d skipped, %d not run",
		counts[resultPassed], counts[resultFailed], counts[resultSkipped], counts[resultNotRun])
	for reason, n := range reasons { // a run has one reason
		fmt.Fprintf(&line, "; skipped %d: %s", n, reason)
	}

	return line.String()
}

// writeList writes a heading and the lines below it, or that there are none.
func writeList(b *strings.Builder, heading string, lines []string) {
	if len(lines) == 0 {
		fmt.Fprintf(b, "\n%s: none\n", heading)
		return
	}

	fmt.Fprintf(b, "\n%s:\n", heading)
	for _, line := range lines {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

// firstLine returns the first line of a text.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// lastLines returns at most n lines from the end of a text.
func lastLines(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
