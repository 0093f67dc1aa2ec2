// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// minimalCoverage is the share of a quoted message that must come from string literals of the code. The rest
// are names, paths and times.
const minimalCoverage = 0.2

// TestQuotedMessagesExist fails for a message in docs/troubleshooting.md that the code no longer prints.
func TestQuotedMessagesExist(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs/troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}

	fragments := messageFragments(t)
	quoted := regexp.MustCompile(`(?m)^ {4}(?:error|hint): (.+)$`).FindAllStringSubmatch(string(content), -1)
	if len(quoted) < 50 {
		t.Fatalf("%d quoted messages: the format of docs/troubleshooting.md has changed", len(quoted))
	}

	for _, q := range quoted {
		if got := coverage(q[1], fragments); got < minimalCoverage {
			t.Errorf("docs/troubleshooting.md quotes a message of which only %.0f%% is in the code: %s", 100*got, q[1])
		}
	}
}

// messageFragments returns what is constant in the string literals of all Go files that are not tests: the text
// between the verbs of fmt and the actions of text/template.
func messageFragments(t *testing.T) []string {
	t.Helper()

	verbs := regexp.MustCompile(`%[-+# 0]*[0-9]*(?:\.[0-9]+)?[a-zA-Z]|\{\{[^}]*\}\}|\n`)
	seen := map[string]bool{}
	textFiles(t, func(path string, content []byte) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return
		}

		file, err := parser.ParseFile(token.NewFileSet(), path, content, 0)
		if err != nil {
			t.Fatal(err)
		}

		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}

			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}

			for _, fragment := range verbs.Split(text, -1) {
				if len(fragment) >= 5 && strings.Contains(fragment, " ") {
					seen[fragment] = true
				}
			}

			return true
		})
	})

	var out []string
	for fragment := range seen {
		out = append(out, fragment)
	}

	return out
}

// coverage returns the share of the bytes of message that belong to one of the fragments.
func coverage(message string, fragments []string) float64 {
	covered := make([]bool, len(message))
	for _, fragment := range fragments {
		for from := 0; ; {
			at := strings.Index(message[from:], fragment)
			if at < 0 {
				break
			}

			for i := range len(fragment) {
				covered[from+at+i] = true
			}

			from += at + len(fragment)
		}
	}

	count := 0
	for _, c := range covered {
		if c {
			count++
		}
	}

	return float64(count) / float64(len(message))
}
