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

	const findings = 41
	for i := range findings {
		if !seen[strconv.Itoa(i+1)] {
			t.Errorf("%s has no row of finding %d", securityFile, i+1)
		}
	}

	if seen[strconv.Itoa(findings+1)] {
		t.Errorf("%s has more than the %d findings that this test counts", securityFile, findings)
	}
}

// TestEachCellHasATest fails for a row of the table of attackers in docs/security.md that does not say what an attacker
// cannot do, or names no test by its name for it: that of a package says not which of its tests is about the row. Each
// attacker that the threat model has is in the table, with what it can and what it cannot do. That the tests exist is
// checked by TestFactsHaveSourceAndTest.
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
