// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
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

		seen[strings.TrimSpace(strings.Split(line, "|")[1])] = true
	}

	const findings = 17
	for i := range findings {
		if !seen[strconv.Itoa(i+1)] {
			t.Errorf("%s has no row of finding %d", securityFile, i+1)
		}
	}
}
