// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const securityFile = "docs/security.md"

// TestEachFindingHasATest fails for a row of the tables of docs/security.md whose attack no test makes, and for a finding of
// the review without a row.
func TestEachFindingHasATest(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, securityFile))
	if err != nil {
		t.Fatal(err)
	}

	command := regexp.MustCompile("`go test ([^`]*\\./[^`]*)`")
	machines := regexp.MustCompile("`(Test\\w+)` \\(`make e2e`\\)")
	endToEnd := testNames(t, "test/e2e")
	table := ""
	seen := map[string]bool{}

	for number, line := range strings.Split(string(content), "\n") {
		switch {
		case strings.HasPrefix(line, "| with |"), strings.HasPrefix(line, "| # |"):
			table = line
			continue
		case !strings.HasPrefix(line, "|"):
			table = ""
		}

		if table == "" || strings.HasPrefix(line, "|---") {
			continue
		}

		for _, match := range machines.FindAllStringSubmatch(line, -1) {
			if !slices.Contains(endToEnd, match[1]) {
				t.Errorf("%s:%d: test/e2e has no %s", securityFile, number+1, match[1])
			}
		}

		if !command.MatchString(line) && !machines.MatchString(line) {
			t.Errorf("%s:%d: the row names no test", securityFile, number+1)
		}

		label := strings.TrimSpace(strings.Split(line, "|")[1])
		if seen[label] && strings.HasPrefix(table, "| # |") {
			t.Errorf("%s:%d: there are two findings %s", securityFile, number+1, label)
		}

		seen[label] = true
		seen[strings.TrimRight(label, "abcdefghijklmnopqrstuvwxyz")] = true // 17a is a part of 17
	}

	const findings = 49
	for i := range findings {
		if !seen[strconv.Itoa(i+1)] {
			t.Errorf("%s has no row of finding %d", securityFile, i+1)
		}
	}

	if seen[strconv.Itoa(findings+1)] {
		t.Errorf("%s has more than the %d findings that this test counts", securityFile, findings)
	}
}

// TestEachCellHasATest fails for a row of the table of attackers in docs/security.md that does not say what an attacker cannot
// do, or names no test by its name for one of its cells: that of a package says not which of its tests is about the row. Each
// attacker that the threat model has is in the table, with what it can and what it cannot do. That the tests exist is checked
// by TestFactsHaveSourceAndTest.
func TestEachCellHasATest(t *testing.T) {
	named := regexp.MustCompile("`go test (?:\\./\\S+ ?)+-run [^`]+`|`Test\\w+` \\(`make e2e`\\)")
	can := map[string]bool{}
	attacker := ""

	for number, line := range attackerRows(t) {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
		if len(cells) != 6 {
			t.Errorf("%s:%d: a row has four cells: %s", securityFile, number, line)
			continue
		}

		if who := strings.TrimSpace(cells[1]); who != "" {
			attacker = who
		}

		can[attacker] = can[attacker] || strings.TrimSpace(cells[2]) != ""
		if strings.TrimSpace(cells[3]) == "" {
			t.Errorf("%s:%d: nothing that %s cannot do", securityFile, number, attacker)
		}

		for _, problem := range untestedCells(cells[2], cells[3], cells[4], named) {
			t.Errorf("%s:%d: %s: %s", securityFile, number, problem, cells[4])
		}

		if len(named.FindAllString(cells[4], -1)) != strings.Count(cells[4], "`go test ")+strings.Count(cells[4], "(`make e2e`)") ||
			!named.MatchString(cells[4]) {
			t.Errorf("%s:%d: the row names a package and not its tests, or none: %s", securityFile, number, cells[4])
		}

		if strings.Contains(cells[2]+cells[3], "go test") {
			t.Errorf("%s:%d: tests are in the last cell", securityFile, number)
		}
	}

	for _, who := range []string{
		"a pod", "a host-network pod", "root on a worker", "a worker's role", "root on a control-plane machine",
		"read access to the bucket", "write access to the bucket", "the read-only policy", "the operator policy", "the network",
	} {
		if !can[who] {
			t.Errorf("%s does not say what an attacker with %s can do", securityFile, who)
		}
	}
}

// untestedCells returns what is wrong with the tests of a row: where it has both what an attacker can and what an attacker
// cannot do, each of its tests is for one of these cells ("can: ...; cannot: ..."), or for both ("both: ..."), and each cell
// has one.
func untestedCells(can, cannot, tests string, named *regexp.Regexp) []string {
	isFilled := map[string]bool{"can": strings.TrimSpace(can) != "", "cannot": strings.TrimSpace(cannot) != ""}
	if !isFilled["can"] || !isFilled["cannot"] {
		return nil // all tests are about the one cell
	}

	label := regexp.MustCompile(`(?:^|; )(both|can|cannot): `)
	text := strings.TrimSpace(tests)
	found := label.FindAllStringSubmatchIndex(text, -1)
	if len(found) == 0 || found[0][0] != 0 {
		return []string{"the tests do not begin with the cell that they are for"}
	}

	isTested := map[string]bool{}
	var out []string
	for i, at := range found {
		end := len(text)
		if i+1 < len(found) {
			end = found[i+1][0]
		}

		cell := text[at[2]:at[3]]
		if !named.MatchString(text[at[1]:end]) {
			out = append(out, cell+": names no test")
			continue
		}

		isTested[cell] = true
	}

	for _, cell := range []string{"can", "cannot"} {
		if !isTested[cell] && !isTested["both"] {
			out = append(out, "no test of what an attacker "+cell+" do")
		}
	}

	return out
}

// TestUntestedCells: a row is refused whose tests are all about one of its two cells, or say not which one they are about.
func TestUntestedCells(t *testing.T) {
	named := regexp.MustCompile("`go test [^`]+`")
	for tests, problems := range map[string]int{
		" both: `go test x`":                               0,
		" can: `go test x`; cannot: `go test y`":           0,
		" can: `go test x` (seen; often); both: `go test`": 2,
		" `go test x`":                                     1,
		" `go test x`; can: `go test y`":                   1,
		" can: `go test x`":                                1,
		" cannot: `go test x`":                             1,
		" can: nothing; cannot: `go test x`":               2,
		" can: `go test x`; cannot: ":                      1,
	} {
		if got := untestedCells("this", "that", tests, named); len(got) != problems {
			t.Errorf("%s: %q, want %d problems", tests, got, problems)
		}
	}

	if got := untestedCells("", "that", "`go test x`", named); len(got) > 0 {
		t.Errorf("one cell: %q", got)
	}
}

// attackerRows yields the rows of the table of attackers, by the number of the line.
func attackerRows(t *testing.T) iter.Seq2[int, string] {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, securityFile))
	if err != nil {
		t.Fatal(err)
	}

	return func(yield func(int, string) bool) {
		inTable := false
		for i, line := range strings.Split(string(content), "\n") {
			isHead := strings.HasPrefix(line, "| with |")
			inTable = strings.HasPrefix(line, "|") && (inTable || isHead)
			if inTable && !isHead && !strings.HasPrefix(line, "|---") && !yield(i+1, line) {
				return
			}
		}
	}
}
