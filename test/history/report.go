// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// ReportVariable is the environment variable with the file into which a test writes its report.
const ReportVariable = "SLIPWAY_FAULTS_REPORT"

// Fault is what clients saw of one fault.
type Fault struct {
	// Kind of the fault.
	Kind string
	// Gap is the longest time without an acknowledged write.
	Gap time.Duration
	// Healing is the time from the fault until everything was healthy again.
	Healing time.Duration
}

// Report describes the faults that clients have seen, as a Markdown table: one line a kind, in the order of their first faults. checked
// is the result of [Recorder.Check].
func Report(counts Counts, faults []Fault, checked error) string {
	verdict := "the history is linearizable"
	if checked != nil {
		verdict = "the history was not shown to be linearizable"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d operations, %d acknowledged writes, %d without an answer, %d faults: %s.\n\n",
		counts.Operations, counts.Acknowledged, counts.Unanswered, len(faults), verdict)
	b.WriteString("| fault | faults | longest time without an acknowledged write | median of these times | healthy again after, at most |\n")
	b.WriteString("|---|---|---|---|---|\n")

	var kinds []string
	for _, f := range faults {
		if !slices.Contains(kinds, f.Kind) {
			kinds = append(kinds, f.Kind)
		}
	}

	for _, kind := range kinds {
		var gaps []time.Duration
		healing := time.Duration(0)
		for _, f := range faults {
			if f.Kind == kind {
				gaps = append(gaps, f.Gap)
				healing = max(healing, f.Healing)
			}
		}

		slices.Sort(gaps)
		fmt.Fprintf(&b, "| %s | %d | %.1f s | %.1f s | %.0f s |\n",
			kind, len(gaps), gaps[len(gaps)-1].Seconds(), gaps[len(gaps)/2].Seconds(), healing.Seconds())
	}

	return b.String()
}

// WriteReport writes a report into a file, between the lines "<!-- NAME: …" and "<!-- end of NAME -->". It appends these lines to a file
// that does not have them, and changes nothing else.
func WriteReport(file, name, report string) error {
	body, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", file, err)
	}

	begin := "<!-- " + name + ":"
	end := "<!-- end of " + name + " -->"
	before, rest, found := strings.Cut(string(body), begin)
	heading, _, _ := strings.Cut(rest, "\n")
	_, after, closed := strings.Cut(rest, end)
	text := before + begin + heading + "\n" + report + end + after
	if !found || !closed {
		text = string(body) + begin + " generated -->\n" + report + end + "\n"
	}

	//nolint:gosec // who runs the test names the file
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}

	return nil
}
