// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated tables of docs/architecture.md")

// piece is a part of a file that belongs to one kind.
type piece struct {
	file  string
	lines int
}

// TestKindsTable checks that each kind of resource has one shape in one file and one driver in one file, and compares the
// table of kinds in docs/architecture.md, with line counts; -update writes it.
func TestKindsTable(t *testing.T) {
	shapes, order := kindShapes(t)
	drivers := kindDrivers(t)
	var table strings.Builder
	table.WriteString("| kind | its shape | lines | its driver | lines of the file |\n|---|---|---:|---|---:|\n")
	for _, name := range order {
		d := drivers[name]
		if len(d) != 1 {
			t.Errorf("%s has %d drivers, want one", name, len(d))
			continue
		}
		s := shapes[name]
		fmt.Fprintf(&table, "| %s | `awskind/%s` | %d | `driver/%s` | %d |\n", name, s.file, s.lines, d[0].file, d[0].lines)
	}
	checkGenerated(t, "docs/architecture.md", "kinds", table.String())
}

// kindShapes finds the structs of package awskind that are kinds, with the lines of the struct and of its Kind method.
func kindShapes(t *testing.T) (map[string]piece, []string) {
	t.Helper()
	sizes := map[string]int{}
	kinds := map[string]piece{}

	var order []string

	inFolder(t, "internal/infra/awskind", func(file string, fset *token.FileSet, f *ast.File) {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if ts, ok := s.(*ast.TypeSpec); ok {
						sizes[ts.Name.Name] = span(fset, d)
					}
				}
			case *ast.FuncDecl:
				if name := receiver(d); name != "" && d.Name.Name == "Kind" {
					kinds[name] = piece{file: file, lines: span(fset, d)}
					order = append(order, name)
				}
			}
		}
	})
	for name, p := range kinds {
		p.lines += sizes[name]
		kinds[name] = p
	}
	slices.SortFunc(order, func(a, b string) int { return strings.Compare(kinds[a].file+a, kinds[b].file+b) })
	return kinds, order
}

// kindDrivers finds where package driver registers the driver of each kind, with the lines of the whole file: calls, reader
// and driver, of neighbouring kinds too where they share one.
func kindDrivers(t *testing.T) map[string][]piece {
	t.Helper()
	out := map[string][]piece{}
	inFolder(t, "internal/infra/aws/driver", func(file string, fset *token.FileSet, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			index, ok := lit.Type.(*ast.IndexExpr)
			if !ok {
				return true
			}
			of, isDriver := index.X.(*ast.Ident)
			kind, isKind := index.Index.(*ast.SelectorExpr)
			if isDriver && isKind && of.Name == "driver" {
				out[kind.Sel.Name] = append(out[kind.Sel.Name], piece{file: file, lines: fset.File(f.Pos()).LineCount()})
			}
			return true
		})
	})
	return out
}

// inFolder calls f with each Go file of a folder that is not a test.
func inFolder(t *testing.T, folder string, f func(name string, fset *token.FileSet, file *ast.File)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no Go file in %s: %v", folder, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		f(filepath.Base(name), fset, file)
	}
}

func span(fset *token.FileSet, n ast.Node) int {
	return fset.Position(n.End()).Line - fset.Position(n.Pos()).Line + 1
}

func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	if id, ok := d.Recv.List[0].Type.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
