// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// TestNoKindNames: the planner has no rule for a kind by name; rules belong into the kind's
// [graph.Lifecycle].
func TestNoKindNames(t *testing.T) {
	var kinds []string
	for _, r := range awskind.AllKinds() {
		k := r.Kind()
		kinds = append(kinds, k.Name, k.Terraform, k.CloudFormation)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		checked++
		for _, found := range kindNamesIn(t, name, kinds) {
			t.Errorf("%s contains the kind %s: declare the rule in graph.Kind instead", name, found)
		}
	}
	if checked < 5 {
		t.Errorf("only %d files were checked", checked)
	}
	example := filepath.Join(t.TempDir(), "example.go")
	if err := os.WriteFile(example, []byte("package x\n\nvar y = \"a volume shrinks\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if len(kindNamesIn(t, example, kinds)) != 1 {
		t.Error("the check does not find the name in an example")
	}
}

// kindNamesIn returns the kinds that appear as a word in a string of a Go file.
func kindNamesIn(t *testing.T, file string, kinds []string) []string {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`[A-Za-z0-9:_-]+`)
	var out []string
	ast.Inspect(tree, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		for _, word := range words.FindAllString(literal.Value, -1) {
			if slices.Contains(kinds, word) {
				out = append(out, word)
			}
		}
		return true
	})
	return out
}
