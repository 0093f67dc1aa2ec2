// SPDX-License-Identifier: Apache-2.0

// Command testsum summarizes the output of go test -json, which it reads from standard input. It
// prints the failures, the figures that tests print in lines that begin with COUNT, the skipped
// tests with their reasons, the table of the verdicts of test/judge, and the numbers of passed,
// failed and skipped tests. It exits with 1 if a test has failed or none has passed. It runs no
// tests itself.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// testEvent is one line of the output of go test -json.
type testEvent struct {
	// Action such as output, pass, fail or skip.
	Action string
	// Package and Test are the names of the test. Test is empty for an event of the package.
	Package, Test string
	// Output is printed text, with its newline.
	Output string
	// ImportPath of the package of a build event.
	ImportPath string
	// Elapsed is the duration in seconds.
	Elapsed float64
}

// testKey identifies a test, or a package if test is empty.
type testKey struct{ pkg, test string }

// summary collects the events of a test run.
type summary struct {
	output                  map[testKey][]string // of the tests and packages that are still running
	passed, failed, skipped int
	skips                   map[string]int // the numbers of skipped tests, by reason
	figures                 []string
	broken                  bool // a build or a package has failed, or a verdict is bad
	verdicts                verdictTable
}

//nolint:forbidigo // the only function that uses the process, as in cmd/
func main() {
	s := &summary{output: map[testKey][]string{}, skips: map[string]int{}, verdicts: verdictTable{}}
	if err := s.readEvents(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}

	os.Exit(s.printReport(os.Stdout))
}

// readEvents reads events until r ends, and prints failures and other text to w immediately.
func (s *summary) readEvents(r io.Reader, w io.Writer) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 1<<20), 64<<20)
	for in.Scan() {
		var e testEvent
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Fprintln(w, in.Text())
			continue
		}

		s.addEvent(e, w)
	}

	return in.Err()
}

func (s *summary) addEvent(e testEvent, w io.Writer) {
	k := testKey{e.Package, e.Test}
	switch e.Action {
	case "output", "build-output":
		if e.Action == "build-output" {
			fmt.Fprint(w, e.Output)
		}

		s.output[k] = append(s.output[k], e.Output)
		if figure, ok := strings.CutPrefix(e.Output, "COUNT "); ok {
			s.figures = append(
				s.figures,
				e.Package[strings.LastIndex(e.Package, "/")+1:]+": "+strings.TrimSpace(figure),
			)
		}

		s.verdicts.addLine(e.Output)

	case "build-fail":
		s.broken = true
	case "pass":
		s.recordPass(e, w)
	case "skip":
		if e.Test != "" {
			s.skipped++
			s.skips[skipReason(s.output[k])]++
		}

	case "fail":
		s.recordFailure(e, w)
	}

	if e.Action == "pass" || e.Action == "skip" || e.Action == "fail" {
		delete(s.output, k)
	}
}

func (s *summary) recordPass(e testEvent, w io.Writer) {
	if e.Test != "" {
		s.passed++
		return
	}

	fmt.Fprintf(w, "ok    %-60s %6.1fs\n", e.Package, e.Elapsed)
}

func (s *summary) recordFailure(e testEvent, w io.Writer) {
	if e.Test != "" {
		s.failed++
	} else {
		s.broken = true
	}

	fmt.Fprintf(
		w,
		"FAIL  %s %s\n%s",
		e.Package,
		e.Test,
		strings.Join(s.output[testKey{e.Package, e.Test}], ""),
	)
	if e.Test == "" {
		s.printUnfinished(e.Package, w)
	}
}

// printUnfinished prints the output of the tests that were still running when their package ended.
// It shows the cause of a panic or of an exceeded time limit.
func (s *summary) printUnfinished(pkg string, w io.Writer) {
	byName := func(a, b testKey) int { return strings.Compare(a.test, b.test) }
	for _, k := range slices.SortedFunc(maps.Keys(s.output), byName) {
		if k.pkg == pkg && k.test != "" {
			fmt.Fprintf(w, "UNFINISHED  %s %s\n%s", pkg, k.test, strings.Join(s.output[k], ""))
			delete(s.output, k)
		}
	}
}

// skipReason returns the reason that a skipped test has printed.
func skipReason(lines []string) string {
	for _, l := range slices.Backward(lines) {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "---") && !strings.HasPrefix(l, "===") {
			return l
		}
	}

	return "no reason given"
}

// printReport prints the summary and returns the exit status.
func (s *summary) printReport(w io.Writer) int {
	if len(s.figures) > 0 {
		fmt.Fprintf(w, "\nFIGURES:\n  %s\n", strings.Join(s.figures, "\n  "))
	}

	if s.skipped > 0 {
		fmt.Fprintf(w, "\nSKIPPED %d tests on this machine:\n", s.skipped)
		for _, reason := range slices.Sorted(maps.Keys(s.skips)) {
			fmt.Fprintf(w, "  %3d × %s\n", s.skips[reason], reason)
		}
	}

	if s.verdicts.printTable(w) > 0 {
		s.broken = true
	}

	fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	if s.failed > 0 || s.broken || s.passed == 0 {
		return 1
	}

	return 0
}
