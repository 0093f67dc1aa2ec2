// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"fmt"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layer is a folder of the tree, what it is for, and the layers whose packages it may import.
type layer struct {
	folder, purpose string
	mayImport       []string
}

// layers is the architecture: who may import whom. Tests are not bound by it.
func layers() []layer {
	return []layer{
		{
			folder:    "cmd",
			purpose:   "The three programs. They pass arguments, streams, environment and clock to `internal`.",
			mayImport: []string{"internal/cli", "internal/machine", "internal/region"},
		},
		{
			folder:    "api",
			purpose:   "The manifests that an operator writes. Types only.",
			mayImport: nil,
		},
		{
			folder:    "internal/cli",
			purpose:   "The command line: flags, one call, output.",
			mayImport: []string{"api", "internal/cluster", "internal/infra", "internal/lib", "internal/machine", "internal/manifest", "internal/region"},
		},
		{
			folder:    "internal/cluster",
			purpose:   "The operator's side: what can be done with a cluster. It does not print and knows no command line.",
			mayImport: []string{"api", "internal/infra", "internal/lib", "internal/machine", "internal/manifest"},
		},
		{
			folder:    "internal/infra",
			purpose:   "The operator's side: the AWS resources of a cluster, from the graph to plan, apply and templates.",
			mayImport: []string{"api", "internal/lib", "internal/manifest"},
		},
		{
			folder:    "internal/manifest",
			purpose:   "The operator's side: manifests are read, completed and checked.",
			mayImport: []string{"api", "internal/lib"},
		},
		{
			folder:    "internal/machine",
			purpose:   "The machine's side: what runs on an instance, and the documents that tell it what to become.",
			mayImport: []string{"api", "internal/lib"},
		},
		{
			folder:    "internal/lib",
			purpose:   "What both sides share.",
			mayImport: nil,
		},
		{
			folder:    "internal/region",
			purpose:   "The local AWS region. It shares no code with the product that it tests.",
			mayImport: nil,
		},
	}
}

// testSupport are packages that only tests import: they may import anything.
func testSupport() []string {
	return []string{"internal/infra/render/rendertest", "internal/lib/store/storetest", "internal/region/regiontest"}
}

// goPackage is a package of the main module.
type goPackage struct {
	folder   string // from the root, with slashes
	synopsis string // the first sentence of its doc
	imports  map[string]string
}

// productPackages reads all packages of the layers, without tests.
func productPackages(t *testing.T) []goPackage {
	t.Helper()

	byFolder := map[string]*goPackage{}

	goFiles(t, func(path string, source []byte) {
		folder := filepath.ToSlash(filepath.Dir(path))
		if strings.HasSuffix(path, "_test.go") || layerOf(folder) == nil {
			return
		}

		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ParseComments|parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}

		p := byFolder[folder]
		if p == nil {
			p = &goPackage{folder: folder, imports: map[string]string{}}
			byFolder[folder] = p
		}

		if file.Doc != nil {
			p.synopsis = new(doc.Package).Synopsis(file.Doc.Text())
		}

		for _, spec := range file.Imports {
			if rest, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/"); ok {
				p.imports[rest] = path
			}
		}
	})

	var packages []goPackage
	for _, p := range byFolder {
		packages = append(packages, *p)
	}

	slices.SortFunc(packages, func(a, b goPackage) int { return strings.Compare(a.folder, b.folder) })

	return packages
}

// layerOf returns the layer of a folder, or nil.
func layerOf(folder string) *layer {
	for _, l := range layers() {
		if folder == l.folder || strings.HasPrefix(folder, l.folder+"/") {
			return &l
		}
	}

	return nil
}

// TestImportsFollowTheLayers fails for an import that the architecture does not allow.
func TestImportsFollowTheLayers(t *testing.T) {
	for _, p := range productPackages(t) {
		if slices.Contains(testSupport(), p.folder) {
			continue
		}

		from := layerOf(p.folder)

		for imported, file := range p.imports {
			to := layerOf(imported)
			if to == nil || to.folder == from.folder || slices.Contains(from.mayImport, to.folder) {
				continue
			}

			t.Errorf("%s imports %s: %s may not import %s (docs/architecture.md)", file, imported, from.folder, to.folder)
		}
	}
}

// TestPackageTable compares the table of packages in docs/architecture.md with the packages' docs; -update writes it.
func TestPackageTable(t *testing.T) {
	packages := productPackages(t)

	var table strings.Builder

	for _, l := range layers() {
		allowed := "nothing else of the module"
		if len(l.mayImport) > 0 {
			allowed = "`" + strings.Join(l.mayImport, "`, `") + "`"
		}

		fmt.Fprintf(&table, "\n### `%s`\n\n%s May import %s.\n\n| package | what it does |\n|---|---|\n", l.folder, l.purpose, allowed)

		for _, p := range packages {
			if layerOf(p.folder).folder == l.folder {
				fmt.Fprintf(&table, "| `%s` | %s |\n", p.folder, strings.ReplaceAll(p.synopsis, "|", "\\|"))
			}
		}
	}

	checkGenerated(t, "docs/architecture.md", "packages", table.String()+"\n")
}

// checkGenerated compares the part of a document between two markers with what it must be; -update writes it.
func checkGenerated(t *testing.T, document, name, want string) {
	t.Helper()

	begin := "<!-- " + name + ": generated by go test ./internal/repocheck -update -->\n"
	end := "<!-- end of " + name + " -->"
	path := filepath.Join(root, document)

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	before, rest, opened := strings.Cut(string(content), begin)

	_, after, closed := strings.Cut(rest, end)
	if !opened || !closed {
		t.Fatalf("%s lacks the lines %q and %q", document, strings.TrimSpace(begin), end)
	}

	updated := before + begin + want + end + after

	if *update && !t.Failed() {
		if err := os.WriteFile(path, []byte(updated), 0o644); err != nil {
			t.Fatal(err)
		}

		return
	}

	if updated != string(content) {
		t.Errorf("the %s table of %s is out of date: go test ./internal/repocheck -update", name, document)
	}
}
