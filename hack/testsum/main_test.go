// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestUnfinishedTestIsShown checks a package that exceeds its time limit. Its test has no result,
// and only its output shows the cause.
func TestUnfinishedTestIsShown(t *testing.T) {
	in := `{"Action":"output","Package":"p","Test":"TestDone","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestDone"}
{"Action":"output","Package":"p","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"p","Output":"FAIL p 600s\n"}
{"Action":"fail","Package":"p"}
`
	s := &summary{output: map[testKey][]string{}, skips: map[string]int{}, verdicts: verdictTable{}}
	var out strings.Builder
	if err := s.readEvents(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if code := s.printReport(&out); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, want := range []string{"FAIL p 600s", "UNFINISHED  p TestHangs\npanic: test timed out", "1 passed, 0 failed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "quiet") {
		t.Errorf("shows what a passed test printed:\n%s", out.String())
	}
}

// TestMissingVerdictIsBad checks the table of verdicts. Every topology must have a verdict in every
// column.
func TestMissingVerdictIsBad(t *testing.T) {
	c := verdictTable{}
	for _, line := range []string{
		"    cell_test.go:20: CELL ha direct region ok\n", "    cell_test.go:20: CELL ha terraform terraform skipped\n",
		"    cell_test.go:20: CELL five direct region ok\n", "CELL too short\n",
	} {
		c.addLine(line)
	}
	var out strings.Builder
	if bad := c.printTable(&out); bad != 1 {
		t.Errorf("%d bad cells, want 1", bad)
	}
	const want = `
          direct  terraform
topology  region  terraform
five      ok      MISSING
ha        ok      skipped
`
	if out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

// TestFiguresAreShown checks that only the figures are shown of the output of a passed test.
func TestFiguresAreShown(t *testing.T) {
	in := `{"Action":"output","Package":"m/p","Test":"TestA","Output":"COUNT crashes: 300 cases\n"}
{"Action":"output","Package":"m/p","Test":"TestA","Output":"    a_test.go:1: quiet\n"}
{"Action":"pass","Package":"m/p","Test":"TestA"}
`
	s := &summary{output: map[testKey][]string{}, skips: map[string]int{}}
	var out strings.Builder
	if err := s.readEvents(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if code := s.printReport(&out); code != 0 || !strings.Contains(out.String(), "FIGURES:\n  p: crashes: 300 cases\n") || strings.Contains(out.String(), "quiet") {
		t.Errorf("exit code %d, output:\n%s", code, out.String())
	}
}
