// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	factsFile  = "docs/aws-facts.md"
	ledgerFile = "docs/testing.md"
)

// TestFactsHaveSourceAndTest fails for a row of docs/aws-facts.md without a source or a test that exists, and for a test in
// docs/testing.md or docs/security.md that does not exist.
func TestFactsHaveSourceAndTest(t *testing.T) {
	named := regexp.MustCompile("-run |E2E_RUN=|`Test\\w+` \\(`make e2e`\\)")
	for number, line := range markdownRows(t, factsFile) {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
		if len(cells) < 6 {
			t.Errorf("%s:%d: a row has a fact, a source, where it matters and a test: %s", factsFile, number, line)
			continue
		}

		if source := cells[2]; !strings.Contains(source, "](http") && !strings.Contains(source, "`") &&
			!strings.Contains(source, "LocalStack") && !strings.Contains(source, "moto") {
			t.Errorf("%s:%d: the source is neither a link nor a file of an SDK nor a recording: %s", factsFile, number, source)
		}

		if !named.MatchString(line) {
			t.Errorf("%s:%d: the row names no test: a package alone says not which of its tests fails", factsFile, number)
		}
	}

	for point := 1; point <= 17; point++ {
		if !hasRow(markdownRows(t, factsFile), fmt.Sprintf("| A.%d ", point)) {
			t.Errorf("%s: no row tells where A.%d is proved", factsFile, point)
		}
	}

	for _, file := range []string{factsFile, ledgerFile, securityFile} {
		for number, line := range markdownRows(t, file) {
			checkNamedTests(t, file, number, line)
		}
	}
}

// hasRow reports whether one of the rows begins with a text.
func hasRow(rows map[int]string, begin string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(rows)), func(row string) bool { return strings.HasPrefix(row, begin) })
}

// markdownRows returns the rows of a page's tables by line number, without heads.
func markdownRows(t *testing.T, file string) map[int]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}

	out := map[int]string{}
	lines := strings.Split(string(content), "\n")
	for i, line := range lines {
		isHead := i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|---")
		if strings.HasPrefix(line, "| ") && !isHead {
			out[i+1] = line
		}
	}

	return out
}

// checkNamedTests fails for a command in a row that runs no test.
func checkNamedTests(t *testing.T, file string, number int, line string) {
	t.Helper()
	code := regexp.MustCompile("`([^`]+)`")
	command := regexp.MustCompile(`\bgo test (?:-\S+ )*((?:\./\S+ ?)+)(?:.*?-run (?:'([^']*)'|(\S+)))?`)
	endToEnd := regexp.MustCompile(`\bE2E_RUN=(\S+) make e2e`)
	machines := regexp.MustCompile("`(Test\\w+)` \\(`make e2e`\\)|`make e2e` \\(`(Test\\w+)`\\)")
	for _, found := range machines.FindAllStringSubmatch(line, -1) {
		checkTestPattern(t, testCommand{file, number, []string{"./test/e2e"}, "^" + found[1] + found[2] + "$"})
	}

	for _, span := range code.FindAllStringSubmatch(line, -1) {
		text := strings.ReplaceAll(span[1], `\|`, "|")
		if found := command.FindStringSubmatch(text); found != nil && !strings.Contains(text, "-fuzz") {
			checkTestPattern(t, testCommand{file, number, strings.Fields(found[1]), found[2] + found[3]})
		}

		if found := endToEnd.FindStringSubmatch(text); found != nil {
			name, _, _ := strings.Cut(found[1], "/")
			checkTestPattern(t, testCommand{file, number, []string{"./test/e2e"}, name})
		}
	}
}

// testCommand is a command in a row that runs tests.
type testCommand struct {
	file    string
	number  int // of the line
	folders []string
	pattern string // of -run
}

// checkTestPattern fails unless each alternative of a pattern of `go test -run` has a test in one of the packages.
func checkTestPattern(t *testing.T, c testCommand) {
	t.Helper()
	var names []string
	for _, folder := range c.folders {
		found := testNames(t, folder)
		if len(found) == 0 {
			t.Errorf("%s:%d: %s has no tests", c.file, c.number, folder)
		}

		names = append(names, found...)
	}

	pattern, _, _ := strings.Cut(c.pattern, "/")
	alternatives := strings.Split(pattern, "|")
	if strings.ContainsAny(pattern, "()[]") {
		alternatives = []string{pattern}
	}

	for _, alternative := range alternatives {
		match, err := regexp.Compile(alternative)
		if err != nil {
			t.Errorf("%s:%d: -run %s: %v", c.file, c.number, alternative, err)
			continue
		}

		if !slices.ContainsFunc(names, match.MatchString) {
			t.Errorf("%s:%d: no test of %s matches %s", c.file, c.number, strings.Join(c.folders, ", "), alternative)
		}
	}
}

// testNames returns the tests, fuzz targets and benchmarks of a package, or of all packages below folder/... .
func testNames(t *testing.T, folder string) []string {
	t.Helper()
	base, recursive := strings.CutSuffix(folder, "/...")
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	var out []string
	err := filepath.WalkDir(filepath.Join(root, base), func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if entry.IsDir() && path != filepath.Join(root, base) && !recursive {
			return filepath.SkipDir
		}

		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}

		content, err := os.ReadFile(path)
		for _, found := range function.FindAllSubmatch(content, -1) {
			out = append(out, string(found[1]))
		}

		return err
	})
	if err != nil {
		t.Logf("%s: %v", folder, err)
	}

	return out
}
