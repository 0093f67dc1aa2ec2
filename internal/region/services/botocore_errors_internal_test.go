// SPDX-License-Identifier: Apache-2.0

package services

import (
	"go/ast"
	"go/token"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// declaredCode is a constant of the type errorCode.
type declaredCode struct {
	text   string
	status int // HTTP status of its errors
}

// TestErrorsAreThoseOfBotocore: each code of a service's errors, with its HTTP status, is that of an error in botocore's model
// of the service, or is listed with the reason in testdata/botocore-errors.txt: AWS has codes that no model has. EC2 has no
// errors in its model; its codes name their sources. S3's model has a few: only their statuses are compared.
func TestErrorsAreThoseOfBotocore(t *testing.T) {
	data := botocoreData(t)
	accepted := readAccepted(t, "botocore-errors.txt")
	all := buildServices(t).allServices()
	compared := 0

	for _, s := range all {
		if s.Name == "ec2" {
			continue
		}

		statuses := readBotocoreModel(t, data, s).errorStatuses()
		if s.Name == "iam" { // its package decides about STS's sessions
			sts := slices.IndexFunc(all, func(other wire.Service) bool { return other.Name == "sts" })
			maps.Copy(statuses, readBotocoreModel(t, data, all[sts]).errorStatuses())
		}

		for _, code := range errorCodesOf(t, s.Name) {
			compared++
			name := s.Name + "." + code.text
			want, ok := statuses[code.text]

			switch {
			case !ok && s.Name != "s3" && !accepted.matches(name):
				t.Errorf("%s: botocore has no such error", name)
			case ok && want != 0 && want != code.status && !accepted.matches(name+":"+strconv.Itoa(want)):
				t.Errorf("%s:%d: the status is %d", name, want, code.status)
			}
		}
	}

	for _, pattern := range accepted.unused() {
		t.Errorf("testdata/botocore-errors.txt: there is no code %s that botocore does not have", pattern)
	}

	if compared < 80 {
		t.Errorf("compared %d codes: the search in this test is broken", compared)
	}
}

// errorCodesOf returns the codes of a service.
func errorCodesOf(t *testing.T, service string) []declaredCode {
	t.Helper()
	dirs := map[string][]string{
		"cloudformation":       {"cloudformation", "cloudformation/template"},
		"elasticloadbalancing": {"elbv2"},
		"events":               {"eventbridge"},
		"logs":                 {"cloudwatchlogs"},
	}[service]
	if dirs == nil {
		dirs = []string{service}
	}

	var out []declaredCode

	for _, dir := range dirs {
		codes := map[string]string{} // by the constant's name
		statuses := map[string]int{}
		for _, file := range parseDirWith(t, token.NewFileSet(), filepath.Join("..", dir)) {
			ast.Inspect(file, func(n ast.Node) bool {
				switch x := n.(type) {
				case *ast.ValueSpec:
					addCode(codes, x)
				case *ast.FuncDecl:
					if x.Name.Name == "status" {
						addStatuses(t, statuses, x)
					}
				}

				return true
			})
		}

		for name, text := range codes {
			status := statuses[name]
			if status == 0 {
				status = http.StatusBadRequest
			}

			out = append(out, declaredCode{text, status})
		}
	}

	if len(out) == 0 {
		t.Errorf("%s has no codes", service)
	}

	return out
}

// addCode adds a constant if it is one of the type errorCode.
func addCode(codes map[string]string, spec *ast.ValueSpec) {
	kind, ok := spec.Type.(*ast.Ident)
	if !ok || kind.Name != "errorCode" || len(spec.Values) != 1 {
		return
	}

	if text, ok := spec.Values[0].(*ast.BasicLit); ok {
		codes[spec.Names[0].Name] = strings.Trim(text.Value, `"`)
	}
}

// addStatuses adds the HTTP statuses that the method status of errorCode returns, by the constants' names.
func addStatuses(t *testing.T, statuses map[string]int, method *ast.FuncDecl) {
	t.Helper()
	known := map[string]int{
		"StatusForbidden":                    http.StatusForbidden,
		"StatusNotFound":                     http.StatusNotFound,
		"StatusConflict":                     http.StatusConflict,
		"StatusMethodNotAllowed":             http.StatusMethodNotAllowed,
		"StatusPreconditionFailed":           http.StatusPreconditionFailed,
		"StatusRequestedRangeNotSatisfiable": http.StatusRequestedRangeNotSatisfiable,
		"StatusNotModified":                  http.StatusNotModified,
	}
	ast.Inspect(method, func(n ast.Node) bool {
		clause, ok := n.(*ast.CaseClause)
		if !ok || len(clause.List) == 0 {
			return true
		}

		answer, ok := clause.Body[0].(*ast.ReturnStmt)
		if !ok {
			t.Fatalf("%s: the case returns nothing", method.Name.Name)
		}

		status, ok := answer.Results[0].(*ast.SelectorExpr)
		if !ok || known[status.Sel.Name] == 0 {
			t.Fatalf("the status of a case is not known to this test")
		}

		for _, constant := range clause.List {
			if name, ok := constant.(*ast.Ident); ok {
				statuses[name.Name] = known[status.Sel.Name]
			}
		}

		return true
	})
}
