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

// unseenAttack is a comment that says the contrary, or what is to be seen one day.
var unseenAttack = regexp.MustCompile(`(?i)(\b(not|never|nobody|nothing|none|nor|neither|cannot|without|hardly|must|should|shall|will|would|` +
	`could|can|may|might|to)|n['’]t)( (yet|ever|been|be|being|is|was|were|has|have|had|so|far|once|it|actually|really))* seen to \w+`)

// tellsHistory reports whether the comment of an attack test says what was seen, or why nothing could be seen.
func tellsHistory(comment string) bool {
	text := strings.Join(strings.Fields(comment), " ")

	return attackHistory.MatchString(unseenAttack.ReplaceAllString(text, ""))
}

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

// TestAttackHistory: a comment that denies the history, or promises it, tells none.
func TestAttackHistory(t *testing.T) {
	t.Parallel()
	for comment, want := range map[string]bool{
		"TestA: it is refused. Seen to succeed before.":                  true,
		"TestA: it is refused. Seen\nto fail without the check.":         true,
		"TestA: without the policy this was seen to succeed.":            true,
		"TestA: it does not wait. Seen to fail.":                         true,
		"TestA: a token was seen to get the role, which it should not.":  true,
		"TestA: not seen to succeed with links. Seen to fail with files": true,
		"TestA: it is refused. Never open: both were made together.":     true,
		"TestA: it is accepted. No attack: what limits must not break.":  true,
		"TestA: it is refused.":                                          false,
		"":                                                               false,
		"TestA: read in the code, and not seen to succeed.":              false,
		"TestA: read in the code, and not\nyet been seen to succeed.":    false,
		"TestA: it was never seen to succeed.":                           false,
		"TestA: nobody has seen to it. It has not been seen to fail.":    false,
		"TestA: it wasn't seen to succeed.":                              false,
		"TestA: it cannot be seen to succeed.":                           false,
		"TestA: nothing was ever seen to fail.":                          false,
		"TestA: it has to be seen to succeed one day.":                   false,
		"TestA: it should be seen to fail.":                              false,
		"TestA: never open:":                                             false,
		"TestA: this is no attack.":                                      false,
	} {
		if got := tellsHistory(comment); got != want {
			t.Errorf("%q tells the history: %t, want %t", comment, got, want)
		}
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
		if !tellsHistory(function.Doc.Text()) {
			out = append(out, function.Name.Name)
		}
	}

	return out
}
