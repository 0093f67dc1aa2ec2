// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func newTestService(t *testing.T) *Service {
	t.Helper()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s, err := New(Config{
		Region:  "us-east-1",
		Account: "000000000000",
		Now:     func() time.Time { return now },
		Rand:    rand.New(rand.NewSource(1)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCreatedKindsAreOperations checks that IAM is not asked about operations that do not exist.
func TestCreatedKindsAreOperations(t *testing.T) {
	t.Parallel()
	ops := newTestService(t).Wire().Operations
	for name := range createdKinds() {
		if !slices.ContainsFunc(ops, func(op wire.Operation) bool { return op.Name == name }) {
			t.Errorf("%s is not an operation", name)
		}
	}
}

// TestEveryTransitionIsApplied checks that applyTransition has a case for each kind of transition.
func TestEveryTransitionIsApplied(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	applied := map[string]bool{}
	f, err := parser.ParseFile(token.NewFileSet(), "transition.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if name := n.Names[0].Name; strings.HasPrefix(name, "transition") {
				declared[name] = true
			}
		case *ast.FuncDecl:
			if n.Name.Name != "applyTransition" {
				return false
			}
		case *ast.CaseClause:
			for _, e := range n.List {
				if id, ok := e.(*ast.Ident); ok {
					applied[id.Name] = true
				}
			}
		}
		return true
	})
	if len(declared) == 0 {
		t.Fatal("no transition was found")
	}
	for name := range declared {
		if !applied[name] {
			t.Errorf("applyTransition ignores %s", name)
		}
	}
}
