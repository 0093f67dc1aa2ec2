// SPDX-License-Identifier: Apache-2.0

package yamltext_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/yamltext"
)

// TestProblemsHaveAPlace: each mistake is reported in the line and column where it is to be corrected.
func TestProblemsHaveAPlace(t *testing.T) {
	for _, test := range []struct {
		name, text   string
		line, column int
		message      string
	}{
		{"tab", "a:\n  b: 1\n\tc: 2\n", 3, 1, "has a tab as indentation"},
		{"tab after spaces", "# x\na:\n  \tc: 2\n  d: 3\n", 3, 3, "has a tab as indentation"},
		{"two colons", "a: b: c\n", 1, 5, `a second ": "`},
		{"indentation", "a:\n    b: 1\n  c: 2\n", 3, 3, "indentation does not match"},
		{"no colon", "a: 1\nbcd\nc: 2\n", 3, 1, "without a colon"},
		{"open list", "a: 1\nb: [1, 2\nc: 3\n", 2, 4, "a list that is not closed"},
		{"open mapping", "a: {b: 1\n", 1, 4, "a mapping that is not closed"},
		{"open quote", "a: 1\nb: \"x\nc: 2\n", 2, 4, "a quote that is not closed"},
		{"escape", "a: \"\\q\"\n", 1, 5, "unknown escape"},
		{"alias", "a: *b\n", 1, 4, "anchor that is not defined"},
		{"at sign", "a: @b\n", 1, 4, "cannot begin a value"},
		{"twice", "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", 5, 3, "the field c twice; first in line 3"},
		{"second document", "a: 1\n---\n\nb: [1\n", 4, 4, "a list that is not closed"},
		{"dash", "a: - b\n", 1, 4, "a dash where no list"},
		{"binary", "a: \x01\n", 1, 4, "not text in UTF-8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			docs := yamltext.Split([]byte(test.text))
			_, problem := docs[len(docs)-1].Parse()
			if problem == nil {
				t.Fatal("no problem is found")
			}
			if problem.At.Line != test.line || problem.At.Column != test.column {
				t.Errorf("got %d:%d, want %d:%d (%s)", problem.At.Line, problem.At.Column, test.line, test.column, problem.Message)
			}
			if !strings.Contains(problem.Message, test.message) || problem.Hint == "" {
				t.Errorf("got %q (%s), want %q", problem.Message, problem.Hint, test.message)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	docs := yamltext.Split([]byte("# a comment\n---\na: 1\n---   \n# nothing\n--- # two\nb: 2\n---x: 1\n--- {c: 3}"))
	if len(docs) != 3 {
		t.Fatalf("got %d documents", len(docs))
	}
	for i, line := range []int{2, 6, 9} {
		if docs[i].FirstLine != line {
			t.Errorf("document %d begins in line %d, want %d", i, docs[i].FirstLine, line)
		}
	}
	if !strings.Contains(string(docs[1].Text), "---x: 1") {
		t.Errorf("a field that begins with dashes ends the document: %q", docs[1].Text)
	}
	if len(yamltext.Split(nil)) != 0 || len(yamltext.Split([]byte("\n# x\n---\n"))) != 0 {
		t.Error("an empty stream has documents")
	}
}

func TestFind(t *testing.T) {
	text := "kind: X\n---\n# head\nspec:\n  list:\n  - {a: 1}\n  - a: 2\n    b: &b {x: 1}\n    c: *b\n  labels:\n    example.com/team: x\n"
	doc, problem := yamltext.Split([]byte(text))[1].Parse()
	if problem != nil {
		t.Fatal(problem)
	}
	for path, want := range map[string]yamltext.Position{
		"spec":                           {Line: 4, Column: 1},
		"spec.list[1].b":                 {Line: 8, Column: 5},
		"spec.list[1].c.x":               {Line: 8, Column: 12},
		"spec.list[0].a":                 {Line: 6, Column: 6},
		"spec.list[7].a":                 {Line: 5, Column: 3},
		"spec.list[0].missing":           {Line: 6, Column: 5},
		"spec.labels[example.com/team]":  {Line: 11, Column: 5},
		"spec.labels[example.com/other]": {Line: 10, Column: 3},
		"none":                           {},
		"":                               {},
	} {
		if got := doc.Find(path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	if got := doc.Value("spec.list[1].a"); got != "2" {
		t.Errorf("got %q", got)
	}
}

// FuzzParse: no input makes the parser panic, and every problem has a position in the file.
func FuzzParse(f *testing.F) {
	f.Add("a: 1\n---\nb: [\n")
	f.Add("\t")
	f.Add("--- {a: *b}")
	f.Add("\r\r`")
	breaks := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Count(breaks.Replace(text), "\n") + 1 // as YAML 1.1 counts them, section 4.2
		for _, doc := range yamltext.Split([]byte(text)) {
			parsed, problem := doc.Parse()
			if problem != nil && (problem.At.Line < 1 || problem.At.Line > lines+1) {
				t.Errorf("%q: a problem in line %d of %d", text, problem.At.Line, lines)
			}
			parsed.Find("a.b[0]")
		}
	})
}
