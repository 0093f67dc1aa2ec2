// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// attackHistory is what the comment of an attack test says about the past: on which code it was seen to succeed as the attacker, or to
// fail; that what it attacks never existed without the defence; or that it is no attack, but what a defence must not break.
var attackHistory = regexp.MustCompile(`(?i)\bseen to \w+|\bnever open: \w+|\bno attack: \w+`)

// TestAttacksTellTheirHistory: a test that never succeeded as the attacker proves nothing. The comment of each test of test/attack says on
// which code it did, or why it could not.
func TestAttacksTellTheirHistory(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "test/attack/*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of test/attack, %v", len(files), err)
	}

	count := 0
	for _, path := range files {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		for _, name := range testsWithoutHistory(t, path, source, &count) {
			t.Errorf("%s: the comment of %s does not say when the attack was seen to succeed; or else write "+
				"\"Never open: ...\" or \"No attack: ...\" with the reason", path, name)
		}
	}

	t.Logf("COUNT %d tests of attacks", count)
	const invented = "package p\n\n// TestA: it is refused.\nfunc TestA(t *testing.T) {}\n\n// TestB: it is refused. Seen\n" +
		"// to succeed before.\nfunc TestB(t *testing.T) {}\n"
	if got := testsWithoutHistory(t, "invented_test.go", []byte(invented), new(int)); len(got) != 1 || got[0] != "TestA" {
		t.Errorf("of invented tests, %q have no history", got)
	}
}

// testsWithoutHistory returns the tests in a file whose comments say nothing of the past, and counts all.
func testsWithoutHistory(t *testing.T, path string, source []byte, count *int) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}

	var out []string
	for _, declared := range file.Decls {
		function, isFunction := declared.(*ast.FuncDecl)
		if !isFunction || !strings.HasPrefix(function.Name.Name, "Test") || function.Name.Name == "TestMain" {
			continue
		}

		*count++
		if text := strings.Join(strings.Fields(function.Doc.Text()), " "); !attackHistory.MatchString(text) {
			out = append(out, function.Name.Name)
		}
	}

	return out
}
