// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/operations.txt")

// TestOperationNames compares the operations that the service serves with the recorded list: none may get lost, and
// none may be served twice.
func TestOperationNames(t *testing.T) {
	t.Parallel()
	var names []string
	for _, op := range newRegion(t).svc.Wire().Operations {
		names = append(names, op.Name)
	}
	slices.Sort(names)
	got := strings.Join(names, "\n") + "\n"
	const path = "testdata/operations.txt"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Error(d)
	}
	if n := len(slices.Compact(names)); n != len(strings.Fields(got)) {
		t.Error("an operation is served twice")
	}
}

// TestOperationInputs checks that each operation decodes the input shape of its own name.
func TestOperationInputs(t *testing.T) {
	t.Parallel()
	for _, op := range newRegion(t).svc.Wire().Operations {
		if got, want := fmt.Sprintf("%T", op.NewInput()), "*ec2."+op.Name+"Input"; got != want {
			t.Errorf("%s decodes into %s, want %s", op.Name, got, want)
		}
	}
}

// operationCall is one line of an operation table: writeOperation(s, "CreateVpc", s.createVPC).
type operationCall struct{ kind, name, handler string }

// parseOperationCalls reads the operation tables out of the package's source.
func parseOperationCalls(t *testing.T) []operationCall {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var out []operationCall
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if c, ok := parseOperationCall(call); ok {
					out = append(out, c)
				}
			}
			return true
		})
	}
	return out
}

func parseOperationCall(call *ast.CallExpr) (operationCall, bool) {
	args := call.Args
	kind := ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		kind = f.Name
	case *ast.SelectorExpr:
		kind = f.Sel.Name
	}
	switch {
	case (kind == "readOperation" || kind == "writeOperation") && len(args) == 3:
		args = args[1:]
	case kind == "NewOperation" && len(args) == 2:
	default:
		return operationCall{}, false
	}
	name, isText := args[0].(*ast.BasicLit)
	handler, isMethod := args[1].(*ast.SelectorExpr)
	if !isText || !isMethod {
		return operationCall{}, false
	}
	text, err := strconv.Unquote(name.Value)
	return operationCall{kind, text, handler.Sel.Name}, err == nil
}

// TestOperationHandlers checks that each line of the tables names the handler of its operation, and that Describe
// operations are reads. The types alone do not tell apart handlers whose shapes are alike.
func TestOperationHandlers(t *testing.T) {
	t.Parallel()
	calls := parseOperationCalls(t)
	if got, want := len(calls), len(newRegion(t).svc.Wire().Operations); got != want {
		t.Errorf("the source has %d operations, the service serves %d", got, want)
	}
	for _, c := range calls {
		if !strings.EqualFold(c.name, c.handler) {
			t.Errorf("%s is handled by %s", c.name, c.handler)
		}
		want := "writeOperation"
		switch {
		case strings.HasPrefix(c.name, "Describe"):
			want = "readOperation"
		case c.name == "GetConsoleOutput":
			want = "NewOperation" // it asks the machine without the lock
		}
		if c.kind != want {
			t.Errorf("%s is a %s, want %s", c.name, c.kind, want)
		}
	}
}

// parseMethods returns the names of the methods that the package's source declares, by receiver type.
func parseMethods(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			receiver := fn.Recv.List[0].Type
			if p, ok := receiver.(*ast.StarExpr); ok {
				receiver = p.X
			}
			if id, ok := receiver.(*ast.Ident); ok {
				out[id.Name] = append(out[id.Name], fn.Name.Name)
			}
		}
	}
	return out
}

// TestHandlersHideNoMethodOfService checks that no handler type declares a method that it also gets from the embedded
// service: the call would silently change its meaning.
func TestHandlersHideNoMethodOfService(t *testing.T) {
	t.Parallel()
	methods := parseMethods(t)
	for receiver, names := range methods {
		if !strings.HasSuffix(receiver, "Handlers") {
			continue
		}
		for _, name := range names {
			if slices.Contains(methods["Service"], name) {
				t.Errorf("%s.%s hides the method of Service", receiver, name)
			}
		}
	}
}
