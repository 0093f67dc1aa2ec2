// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const securityFile = "docs/security.md"

// testCommandPattern returns what matches a command of a page that runs tests.
func testCommandPattern() *regexp.Regexp { return regexp.MustCompile("`go test ([^`]*\\./[^`]*)`") }

// testNames are the names of the tests of packages that were looked up, by folder.
type testNames map[string][]string

// in returns the names of the tests of a package, or of all below a folder that ends with "/...".
func (n testNames) in(t *testing.T, folder string) []string {
	t.Helper()

	if found, ok := n[folder]; ok {
		return found
	}

	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w*)\(`)
	top, isTree := strings.CutSuffix(filepath.Join(root, folder), "/...")

	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != top && !isTree:
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}

		source, err := os.ReadFile(path)
		for _, match := range declaration.FindAllSubmatch(source, -1) {
			n[folder] = append(n[folder], string(match[1]))
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return n[folder]
}

// missing returns the alternatives of -run in the arguments of a command that no test of its packages matches.
func (n testNames) missing(t *testing.T, arguments string) []string {
	t.Helper()

	var tests []string
	for word := range strings.FieldsSeq(arguments) {
		if strings.HasPrefix(word, "./") {
			tests = append(tests, n.in(t, word)...)
		}
	}

	if len(tests) == 0 {
		return []string{"any test"}
	}

	run := regexp.MustCompile(`-run '?([^' ]+)'?`).FindStringSubmatch(arguments)
	if run == nil {
		return nil
	}

	name, _, _ := strings.Cut(run[1], "/")

	var out []string
	for alternative := range strings.SplitSeq(strings.ReplaceAll(name, `\|`, "|"), "|") {
		pattern := regexp.MustCompile(alternative)
		if !slices.ContainsFunc(tests, pattern.MatchString) && alternative != "^$" {
			out = append(out, alternative)
		}
	}

	return out
}

// TestNamedTestsExist fails for a page that names a test which does not exist: what the page says would be tested by nothing.
func TestNamedTestsExist(t *testing.T) {
	names := testNames{}

	for _, page := range []string{securityFile, "docs/testing.md", "docs/aws-facts.md"} {
		content, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}

		found := 0
		for number, line := range strings.Split(string(content), "\n") {
			for _, command := range testCommandPattern().FindAllStringSubmatch(line, -1) {
				found++
				for _, missing := range names.missing(t, command[1]) {
					t.Errorf("%s:%d: go test %s: there is no %s", page, number+1, command[1], missing)
				}
			}
		}

		if found == 0 {
			t.Errorf("%s names no test", page)
		}
	}
}

// TestEachFindingHasATest fails for a row of the tables of docs/security.md whose attack no test makes, and for a finding of
// the review without a row.
func TestEachFindingHasATest(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, securityFile))
	if err != nil {
		t.Fatal(err)
	}

	machines := regexp.MustCompile("`(Test\\w+)` \\(`make e2e`\\)")
	names := testNames{}
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
			if !slices.Contains(names.in(t, "test/e2e"), match[1]) {
				t.Errorf("%s:%d: test/e2e has no %s", securityFile, number+1, match[1])
			}
		}

		if !testCommandPattern().MatchString(line) && !machines.MatchString(line) {
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
