// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Outcome is what happened to a spec.
type Outcome string

// The outcomes of specs.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"  // also: panicked, interrupted, timed out
	Skipped Outcome = "skipped" // the spec itself found that the cluster does not meet its conditions
	NotRun  Outcome = "not run" // it was not selected
)

// Result is the outcome of one spec.
type Result struct {
	// Spec is as in [Exception].
	Spec string
	// Outcome is the outcome of the spec.
	Outcome Outcome
	// Text is the message of a failure or the reason of a skip.
	Text string
	// Time is how long the spec ran.
	Time time.Duration
}

// ginkgoSuite is a suite in a report of ginkgo.
type ginkgoSuite struct {
	SpecReports []ginkgoSpec
}

// ginkgoSpec is a node of a suite in a report of ginkgo.
type ginkgoSpec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

// ReadReport reads a report of ginkgo: the specs, and the failed preparations and cleanups of a whole suite, which have a
// name in parentheses. The results are sorted by name.
func ReadReport(r io.Reader) ([]Result, error) {
	var suites []ginkgoSuite
	if err := json.NewDecoder(r).Decode(&suites); err != nil {
		return nil, fmt.Errorf("read the report of ginkgo: %w", err)
	}

	var out []Result

	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			result := newResult(spec)
			if spec.LeafNodeType != "It" && result.Outcome != Failed {
				continue
			}

			out = append(out, result)
		}
	}

	slices.SortFunc(out, func(a, b Result) int { return cmp.Compare(a.Spec, b.Spec) })

	return out, nil
}

func newResult(spec ginkgoSpec) Result {
	name := strings.Join(append(slices.Clone(spec.ContainerHierarchyTexts), spec.LeafNodeText), " ")
	if spec.LeafNodeType != "It" {
		name = "(" + strings.TrimSpace(spec.LeafNodeType+" "+name) + ")"
	}

	result := Result{Spec: name, Outcome: Failed, Text: spec.Failure.Message, Time: spec.RunTime}
	switch spec.State {
	case "passed":
		result.Outcome = Passed
	case "skipped", "pending":
		// Ginkgo reports what was not selected as skipped too, without a message.
		result.Outcome = Skipped
		if spec.Failure.Message == "" {
			result.Outcome = NotRun
		}
	}

	return result
}

// PassedSpecs returns the names of the specs that passed. In a dry run, they are those that would run.
func PassedSpecs(results []Result) []string { return namesOf(results, Passed) }

// FailedSpecs returns the names of the specs that failed, without preparations and cleanups of the whole suite.
func FailedSpecs(results []Result) []string {
	return slices.DeleteFunc(namesOf(results, Failed), func(name string) bool { return strings.HasPrefix(name, "(") })
}

// FindMissing returns the names among specs that have no outcome, such as because the time was over.
func FindMissing(specs []string, results []Result) []string {
	ran := map[string]bool{}
	for _, r := range results {
		ran[r.Spec] = r.Outcome != NotRun
	}

	return slices.DeleteFunc(slices.Clone(specs), func(name string) bool { return ran[name] })
}

func namesOf(results []Result, outcome Outcome) []string {
	var out []string
	for _, r := range results {
		if r.Outcome == outcome {
			out = append(out, r.Spec)
		}
	}

	return out
}

// Replace returns the results of a first run with those of a second run in the place of the first ones. Specs that were not
// run in the second run keep their first result.
func Replace(first, second []Result) []Result {
	later := map[string]Result{}
	for _, r := range second {
		if r.Outcome != NotRun {
			later[r.Spec] = r
		}
	}

	out := slices.Clone(first)
	for i, r := range out {
		if result, again := later[r.Spec]; again {
			out[i] = result
			delete(later, r.Spec)
		}
	}

	for _, r := range second {
		if _, isNew := later[r.Spec]; isNew {
			out = append(out, r)
		}
	}

	return out
}

// Counts are the lines of figures about a run, without a prefix: what passed and failed, what skipped itself, and what the
// list leaves out, by reason.
func Counts(results []Result, exceptions []Exception, repeated int) []string {
	count := map[Outcome]int{}
	reasons := map[string]int{}
	for _, r := range results {
		count[r.Outcome]++
		if r.Outcome == Skipped {
			reasons["skipped itself: "+firstLine(r.Text)]++
		}
	}

	for _, e := range exceptions {
		reasons["left out: "+e.Reason]++
	}

	out := []string{fmt.Sprintf(
		"%d passed (%d of them only in a second run, alone), %d failed, %d skipped themselves, %d left out by the list",
		count[Passed],
		repeated,
		count[Failed],
		count[Skipped],
		len(exceptions),
	)}

	var lines []string
	for reason, n := range reasons {
		lines = append(lines, fmt.Sprintf("%d %s", n, reason))
	}

	slices.Sort(lines)

	return append(out, lines...)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
