// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// regionCodes is what one package of the local region says about the codes of its errors.
type regionCodes struct {
	constants map[string]string   // name of a constant in errors.go by its code
	literals  map[string][]string // places outside errors.go by text
	built     []string            // places outside errors.go that make an error from a text
	hasSource bool                // the comment of errorCode names an API reference
}

// parseRegionCodes returns what each package of the region says about codes, by folder. regiontest is a client of tests.
func parseRegionCodes(t *testing.T) map[string]*regionCodes {
	t.Helper()
	source := regexp.MustCompile(`(?s)// errorCode is .*AP(I|IReference).*\ntype errorCode string`)
	made := regexp.MustCompile(`\bwire\.(Status)?Errorf\(|\bwire\.Error\{|[^.\w](Status)?Errorf\(|&Error\{`)
	text := regexp.MustCompile(`\bnewErrorf?\(\s*"|\berrorCode\("`)
	packages := map[string]*regionCodes{}

	goFiles(t, func(file string, content []byte) {
		file = filepath.ToSlash(file)
		dir := path.Dir(file)
		if !strings.HasPrefix(dir, "internal/region/") || dir == "internal/region/regiontest" || strings.HasSuffix(file, "_test.go") {
			return
		}

		p := packages[dir]
		if p == nil {
			p = &regionCodes{constants: map[string]string{}, literals: map[string][]string{}}
			packages[dir] = p
		}

		isList := path.Base(file) == "errors.go" && strings.Contains(string(content), "\ntype errorCode string\n")
		places := text.FindAllIndex(content, -1)
		if isList {
			p.hasSource = source.Match(content)
		} else {
			places = append(places, made.FindAllIndex(content, -1)...)
		}

		for _, at := range places {
			p.built = append(p.built, lineOf(file, content, at[0]))
		}

		p.addTexts(t, file, content, isList)
	})

	return packages
}

// lineOf returns a position of a file as FILE:LINE.
func lineOf(file string, content []byte, offset int) string {
	files := token.NewFileSet()
	f := files.AddFile(file, -1, len(content))
	f.SetLinesForContent(content)

	return file + ":" + strconv.Itoa(f.Line(f.Pos(offset)))
}

// addTexts records the constants of the type errorCode in errors.go, and otherwise all texts of a file.
func (p *regionCodes) addTexts(t *testing.T, file string, content []byte, isList bool) {
	t.Helper()
	files := token.NewFileSet()
	syntax, err := parser.ParseFile(files, file, content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}

	ast.Inspect(syntax, func(n ast.Node) bool {
		if _, isImport := n.(*ast.ImportSpec); isImport {
			return false
		}

		if spec, ok := n.(*ast.ValueSpec); ok && isList && len(spec.Values) == 1 {
			kind, isName := spec.Type.(*ast.Ident)
			if literal, isText := spec.Values[0].(*ast.BasicLit); isText && isName && kind.Name == "errorCode" {
				p.constants[strings.Trim(literal.Value, `"`)] = spec.Names[0].Name
				return false
			}
		}

		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			code := strings.Trim(literal.Value, `"`)
			p.literals[code] = append(p.literals[code], files.Position(literal.Pos()).String())
		}

		return true
	})
}

// TestErrorCodesOfTheRegion: every service of the local region has the codes of its errors as constants of the type errorCode
// in errors.go, with their source, and creates no error from a text elsewhere; nor does it compare an error with one.
func TestErrorCodesOfTheRegion(t *testing.T) {
	services := 0

	for dir, p := range parseRegionCodes(t) {
		for _, at := range p.built {
			t.Errorf("%s: use newError or newErrorf with a constant of errors.go", at)
		}

		if len(p.constants) == 0 {
			continue
		}

		services++
		if !p.hasSource {
			t.Errorf("%s/errors.go: the comment of errorCode does not name the API reference that the codes are from", dir)
		}

		for code, name := range p.constants {
			for _, at := range p.literals[code] {
				t.Errorf("%s: use %s for %q", at, name, code)
			}
		}
	}

	if services < 17 {
		t.Fatalf("%d services have the type errorCode: the search in this test is broken", services)
	}
}
