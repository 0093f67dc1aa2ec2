// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

const (
	maxColumns     = 100 // a tab counts as four columns
	maxPairsOnLine = 3   // `Field: value` pairs
)

// group is a set of folders that is measured as one.
type group struct {
	name    string
	folders []string
}

// measurement is what was counted in a group.
type measurement struct {
	lines, codeLines, blankLines, wideLines int

	functions, oneWordFunctions int // unexported functions and methods
	parallelAssignments         int // a, b := x, y
	packedLines                 int // lines with more than maxPairsOnLine pairs
	nolints                     int
	fields, documentedFields    int            // exported fields of exported structs
	methods                     map[string]int // by folder and type
	places                      []string       // file:line and what counts there
}

// largestType returns the type with the most methods, and how many.
func (m *measurement) largestType() (string, int) {
	name := ""
	most := 0

	for typeName, n := range m.methods {
		if n > most || n == most && typeName < name {
			name = typeName
			most = n
		}
	}

	return name, most
}

// measureGroup reads all Go files of a group.
func measureGroup(g group) (*measurement, error) {
	m := &measurement{methods: map[string]int{}}

	var excluded []string

	for _, folder := range g.folders {
		if rest, ok := strings.CutPrefix(folder, "-"); ok {
			excluded = append(excluded, rest)
		}
	}

	for _, folder := range g.folders {
		if strings.HasPrefix(folder, "-") {
			continue
		}

		if err := m.addFolder(folder, excluded); err != nil {
			return m, err
		}
	}

	name, most := m.largestType()
	m.places = append(m.places, fmt.Sprintf("%s: %s has the most methods: %d", g.name, name, most))

	return m, nil
}

func (m *measurement) addFolder(folder string, excluded []string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}

		if entry.IsDir() {
			if slices.Contains(excluded, filepath.ToSlash(path)) || entry.Name() == "testdata" {
				return filepath.SkipDir
			}

			return nil
		}

		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}

		source, err := os.ReadFile(path) //nolint:gosec // the checkout of the person who runs this
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}

		return m.addFile(path, source)
	})
}

// addFile counts one file. Generated files are left out.
func (m *measurement) addFile(path string, source []byte) error {
	if generatedPattern().Match(source) {
		return nil
	}

	files := token.NewFileSet()

	file, err := parser.ParseFile(files, path, source, parser.ParseComments)
	if err != nil {
		return fmt.Errorf("parse %s: %w", path, err)
	}

	m.countLines(path, source)

	counter := fileCounter{measurement: m, files: files, pairs: map[int]int{}, path: path}
	ast.Inspect(file, counter.countNode)

	for line, n := range counter.pairs {
		if n > maxPairsOnLine {
			m.packedLines++
			m.addPlace(path, line, fmt.Sprintf("packed: %d pairs in one line", n))
		}
	}

	return nil
}

func generatedPattern() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
}

func (m *measurement) addPlace(path string, line int, text string) {
	m.places = append(m.places, fmt.Sprintf("%s:%d: %s", path, line, text))
}

// countLines counts what needs no syntax tree.
func (m *measurement) countLines(path string, source []byte) {
	for number, line := range strings.Split(string(bytes.TrimRight(source, "\n")), "\n") {
		m.lines++

		text := strings.TrimSpace(line)

		switch {
		case text == "":
			m.blankLines++
		case !strings.HasPrefix(text, "//"):
			m.codeLines++

			if len(strings.ReplaceAll(line, "\t", "    ")) > maxColumns {
				m.wideLines++
			}
		}

		if n := strings.Count(text, "//"+"nolint"); n > 0 {
			m.nolints += n
			m.addPlace(path, number+1, "nolint")
		}
	}
}

// fileCounter counts in the syntax tree of one file.
type fileCounter struct {
	*measurement

	files *token.FileSet
	path  string
	pairs map[int]int // `Field: value` pairs by line
}

func (c *fileCounter) lineOf(n ast.Node) int {
	return c.files.Position(n.Pos()).Line
}

func (c *fileCounter) countNode(n ast.Node) bool {
	switch x := n.(type) {
	case *ast.FuncDecl:
		c.countFunction(x)
	case *ast.AssignStmt:
		if len(x.Lhs) > 1 && len(x.Lhs) == len(x.Rhs) {
			c.parallelAssignments++
			c.addPlace(c.path, c.lineOf(x), "parallel assignment")
		}
	case *ast.KeyValueExpr:
		if key, ok := x.Key.(*ast.Ident); ok && key.IsExported() {
			c.pairs[c.lineOf(x)]++
		}
	case *ast.TypeSpec:
		if s, ok := x.Type.(*ast.StructType); ok && x.Name.IsExported() {
			c.countFields(x.Name.Name, s)
		}
	}

	return true
}

func (c *fileCounter) countFunction(f *ast.FuncDecl) {
	if receiver := receiverName(f); receiver != "" {
		c.methods[filepath.Base(filepath.Dir(c.path))+"."+receiver]++
	}

	name := f.Name.Name
	if f.Name.IsExported() || name == "main" || name == "init" {
		return
	}

	c.functions++

	if strings.IndexFunc(name[1:], unicode.IsUpper) < 0 {
		c.oneWordFunctions++
		c.addPlace(c.path, c.lineOf(f), "one-word name: "+name)
	}
}

// receiverName returns the name of a method's type, or "" for a function.
func receiverName(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) != 1 {
		return ""
	}

	expression := f.Recv.List[0].Type
	if pointer, ok := expression.(*ast.StarExpr); ok {
		expression = pointer.X
	}

	if generic, ok := expression.(*ast.IndexExpr); ok {
		expression = generic.X
	}

	if name, ok := expression.(*ast.Ident); ok {
		return name.Name
	}

	return ""
}

func (c *fileCounter) countFields(typeName string, s *ast.StructType) {
	for _, field := range s.Fields.List {
		for _, name := range field.Names {
			if !name.IsExported() {
				continue
			}

			c.fields++

			if field.Doc != nil || field.Comment != nil {
				c.documentedFields++
			} else {
				c.addPlace(c.path, c.lineOf(name), "field without a comment: "+typeName+"."+name.Name)
			}
		}
	}
}
