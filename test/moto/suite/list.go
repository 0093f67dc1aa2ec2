// SPDX-License-Identifier: Apache-2.0

// Package suite runs moto's own test suite against the local region in records mode. The tests come from
// moto's repository and are not part of this one. The file suite.txt lists those that run, each with a
// [Verdict]: most of them pass, and the others have a reason why they cannot. The package does not know what
// the tests check.
package suite

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Verdict says what is expected of a test.
type Verdict string

// The verdicts. All but [Pass] have a reason.
const (
	// Pass is the verdict of a test that passes.
	Pass Verdict = "pass"
	// NotOffered is the verdict of a test that needs an operation, a parameter or a kind of resource that
	// the region refuses by name.
	NotOffered Verdict = "not-offered"
	// MotoSpecific is the verdict of a test of what moto does and AWS does not: texts and values that moto
	// invented, its own API, its Python objects.
	MotoSpecific Verdict = "moto-specific"
	// Differs is the verdict of a test of what AWS does and the region does not do yet.
	Differs Verdict = "differs"
)

// Verdicts returns all verdicts, in the order of reports.
func Verdicts() []Verdict { return []Verdict{Pass, NotOffered, MotoSpecific, Differs} }

// Entry is a line of the list.
type Entry struct {
	// Verdict is what is expected of the test.
	Verdict Verdict
	// ID is pytest's ID of the test below moto's folder of tests, such as
	// test_s3/test_s3.py::test_create_bucket.
	ID string
	// Reason says why the test cannot pass; empty if it does.
	Reason string
}

// reasonMark separates the ID of a test from the reason.
const reasonMark = " -- "

// ParseList reads a list: one test a line with its verdict, its ID and, after " -- ", the reason. Empty
// lines and lines that begin with # are ignored. The lines are sorted by ID, without duplicates.
func ParseList(r io.Reader) ([]Entry, error) {
	var out []Entry

	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}

		entry, err := parseEntry(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}

		if n := len(out); n > 0 && out[n-1].ID >= entry.ID {
			return nil, fmt.Errorf("line %d: %s does not sort after %s", number, entry.ID, out[n-1].ID)
		}

		out = append(out, entry)
	}

	return out, lines.Err()
}

// parseEntry reads one line of a list.
func parseEntry(line string) (Entry, error) {
	verdict, rest, _ := strings.Cut(line, " ")
	id, reason, hasReason := strings.Cut(rest, reasonMark)
	entry := Entry{Verdict: Verdict(verdict), ID: id, Reason: reason}

	switch {
	case !slices.Contains(Verdicts(), entry.Verdict):
		return entry, fmt.Errorf("invalid verdict %q: want one of %v", verdict, Verdicts())

	case !strings.HasPrefix(id, "test_") || !strings.Contains(id, ".py::") || strings.TrimSpace(id) != id:
		return entry, fmt.Errorf("invalid ID %q: want FILE.py::TEST", id)

	case entry.Verdict == Pass && hasReason:
		return entry, fmt.Errorf("%s passes and has a reason", id)

	case entry.Verdict != Pass && strings.TrimSpace(reason) == "":
		return entry, fmt.Errorf("%s has no reason: add %qREASON", id, reasonMark)
	}

	return entry, nil
}

// Outcome is what happened to a test.
type Outcome string

// The outcomes of tests, in pytest's words.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
)

// Result is the outcome of one test.
type Result struct {
	// ID is as in [Entry].
	ID string `json:"id"`
	// Outcome is the outcome of the test. A test whose preparation or cleanup fails has failed.
	Outcome Outcome `json:"outcome"`
	// When is the phase that the result is of: collect, setup, call or teardown.
	When string `json:"when"`
	// Text is the message of a failure or the reason of a skip.
	Text string `json:"text"`
}

// Mismatch is a test with another outcome than its verdict predicts.
type Mismatch struct {
	// ID is the test's ID.
	ID string
	// Problem says what happened and what was expected.
	Problem string
	// Text is the message of the failure; may be empty.
	Text string
}

// Compare returns the tests whose outcomes do not agree with the list, in the list's order: one that should
// pass and did not or did not run, and one that passes although it has a reason not to.
func Compare(list []Entry, results []Result) []Mismatch {
	worst := worstResults(results)
	var out []Mismatch

	for _, entry := range list {
		result, ran := worst[entry.ID]
		switch {
		case !ran:
			out = append(out, Mismatch{ID: entry.ID, Problem: "did not run: moto's tests have no such test"})

		case entry.Verdict == Pass && result.Outcome != Passed:
			out = append(out, Mismatch{entry.ID, string(result.Outcome) + ", and is listed as passing", result.Text})

		case entry.Verdict != Pass && result.Outcome == Passed:
			out = append(out, Mismatch{
				ID:      entry.ID,
				Problem: "passes: change its verdict from " + string(entry.Verdict) + " to pass",
			})
		}
	}

	return out
}

// worstResults returns one result for each test: a failure of any phase, else a skip, else the success.
func worstResults(results []Result) map[string]Result {
	rank := map[Outcome]int{Passed: 1, Skipped: 2, Failed: 3}
	out := map[string]Result{}

	for _, result := range results {
		if rank[result.Outcome] > rank[out[result.ID].Outcome] {
			out[result.ID] = result
		}
	}

	return out
}

// Count returns the number of entries with each verdict.
func Count(list []Entry) map[Verdict]int {
	out := map[Verdict]int{}
	for _, entry := range list {
		out[entry.Verdict]++
	}

	return out
}
