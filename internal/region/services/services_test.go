// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryServiceIsWired finds the packages of internal/region that make a wire.Service and looks for each in
// services.go: a service that is missing there does not exist for clients.
func TestEveryServiceIsWired(t *testing.T) {
	t.Parallel()
	var wiring strings.Builder
	for _, name := range []string{"services.go", "functions.go", "storage.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}

		wiring.Write(text)
	}

	found := 0
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range entries {
		if !e.IsDir() || e.Name() == "wire" || e.Name() == "services" || !makesService(t, filepath.Join("..", e.Name())) {
			continue
		}

		found++
		if !strings.Contains(wiring.String(), e.Name()+".New(") && !strings.Contains(wiring.String(), e.Name()+".Service(") {
			t.Errorf("services.go, functions.go and storage.go do not build internal/region/%s", e.Name())
		}
	}

	if found < 11 {
		t.Errorf("found %d packages with a service: the search in this test is broken", found)
	}
}

// makesService reports whether a function of the package in dir returns a wire.Service.
func makesService(t *testing.T, dir string) bool {
	t.Helper()
	makes := false
	for _, f := range parseDir(t, dir, 0) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Type.Results == nil || len(fn.Type.Results.List) != 1 || !fn.Name.IsExported() {
				continue
			}

			result, ok := fn.Type.Results.List[0].Type.(*ast.SelectorExpr)
			pkg, _ := selectorPackage(result, ok)
			makes = makes || pkg == "wire" && result.Sel.Name == "Service"
		}
	}

	return makes
}

func selectorPackage(e *ast.SelectorExpr, ok bool) (string, bool) {
	if !ok {
		return "", false
	}

	id, ok := e.X.(*ast.Ident)
	if !ok {
		return "", false
	}

	return id.Name, true
}

// TestTestRegionDoesNotImportRegion: tests of the provisioner run on computers without root and without Linux, so
// regiontest must not link the region's process, its machines or its network.
func TestTestRegionDoesNotImportRegion(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{".", "../regiontest"} {
		for name, f := range parseDir(t, dir, parser.ImportsOnly) {
			for _, i := range f.Imports {
				path := strings.Trim(i.Path.Value, `"`)
				for _, not := range []string{"internal/region", "region/machine", "region/network", "region/image"} {
					if strings.HasSuffix(path, not) {
						t.Errorf("%s imports %s", name, path)
					}
				}
			}
		}
	}
}

// parseDir parses the files of a package without its tests.
func parseDir(t *testing.T, dir string, mode parser.Mode) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}

	files := map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}

		f, err := parser.ParseFile(token.NewFileSet(), name, nil, mode)
		if err != nil {
			t.Fatal(err)
		}

		files[name] = f
	}

	return files
}
