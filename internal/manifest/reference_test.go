// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/manifest/fielddocs"
)

var update = flag.Bool("update", false, "rewrite docs/reference/manifest.md and examples/ha.yaml")

// field is one row of the reference.
type field struct{ path, typ, doc string }

// apiTypes returns the structs of package v1alpha1, by name.
func apiTypes(t *testing.T) map[string]*ast.StructType {
	t.Helper()
	paths, err := filepath.Glob("../../api/v1alpha1/*.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*ast.StructType{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					out[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	return out
}

// fieldsOf returns the rows of all fields below a type. Their paths begin with path.
func fieldsOf(types map[string]*ast.StructType, typ, path string) []field {
	var out []field
	for _, f := range types[typ].Fields.List {
		name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
		at := strings.TrimPrefix(path+"."+name, ".")
		elem, shown := "", ""
		switch e := f.Type.(type) {
		case *ast.Ident:
			elem, shown = e.Name, e.Name
		case *ast.StarExpr:
			shown = fmt.Sprint(e.X)
		case *ast.ArrayType:
			elem = fmt.Sprint(e.Elt)
			shown = "list of " + elem
			if types[elem] != nil {
				at += "[]"
			}
		case *ast.MapType:
			shown = fmt.Sprintf("map of %s to %s", e.Key, e.Value)
		}
		out = append(out, field{at, shown, strings.Join(strings.Fields(f.Doc.Text()), " ")})
		if types[elem] != nil {
			out = append(out, fieldsOf(types, elem, at)...)
		}
	}
	return out
}

func reference(t *testing.T) string {
	t.Helper()
	types := apiTypes(t)
	defaults := map[string]string{}
	for _, r := range manifest.DefaultRules() {
		defaults[r.Kind+" "+r.Path] = r.Description
	}
	var b strings.Builder
	b.WriteString("# Reference of the manifests\n\nGenerated from `api/v1alpha1/types.go` and the table of defaults in `internal/manifest/defaults.go` by\n" +
		"`go test ./internal/manifest -update`. Every document has `apiVersion: " + v1alpha1.APIVersion + "`.\n")
	for _, kind := range []string{"Cluster", "InstanceGroup"} {
		fmt.Fprintf(&b, "\n## %s\n\n| field | type | meaning | default |\n|---|---|---|---|\n", kind)
		for _, f := range fieldsOf(types, kind, "") {
			if types[strings.TrimPrefix(f.typ, "list of ")] != nil && f.typ != "list of Subnet" && f.doc == "" {
				continue // metadata and spec need no description
			}
			def := defaults[kind+" "+f.path]
			delete(defaults, kind+" "+f.path)
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.path, f.typ, strings.ReplaceAll(f.doc, "|", "\\|"), def)
		}
	}
	for _, left := range slices.Sorted(maps.Keys(defaults)) {
		t.Errorf("%s has a default but is not a field", left)
	}
	return b.String()
}

func TestReferenceIsInStep(t *testing.T) {
	for file, want := range map[string]string{
		"../../docs/reference/manifest.md": reference(t),
		"fielddocs/fields.json":            embeddedReference(t),
	} {
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s: run go test ./internal/manifest -update (-want +got):\n%s", file, diff)
		}
	}
}

// embeddedReference returns the fields of both kinds as 'slipway explain' reads them.
func embeddedReference(t *testing.T) string {
	t.Helper()
	types := apiTypes(t)
	defaults := map[string]string{}
	for _, r := range manifest.DefaultRules() {
		defaults[r.Kind+" "+r.Path] = r.Description
	}
	var kinds []fielddocs.Field
	for _, kind := range []string{"Cluster", "InstanceGroup"} {
		root := fielddocs.Field{Kind: kind}
		for _, f := range fieldsOf(types, kind, "") {
			root.Fields = nest(root.Fields, fielddocs.Field{Kind: kind, Path: f.path, Type: f.typ, Description: f.doc, Default: defaults[kind+" "+f.path]})
		}
		kinds = append(kinds, root)
	}
	text, err := json.MarshalIndent(kinds, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// nest adds a field below the last of fields if its path begins with that of the last one, else after it.
func nest(fields []fielddocs.Field, f fielddocs.Field) []fielddocs.Field {
	if n := len(fields); n > 0 && strings.HasPrefix(f.Path, fields[n-1].Path+".") {
		fields[n-1].Fields = nest(fields[n-1].Fields, f)
		return fields
	}
	return append(fields, f)
}

// TestEveryFieldIsDocumented checks that every field has a comment, since the reference is
// generated from the comments.
func TestEveryFieldIsDocumented(t *testing.T) {
	types := apiTypes(t)
	for _, kind := range []string{"ClusterSpec", "InstanceGroupSpec", "Metadata"} {
		for _, f := range fieldsOf(types, kind, "") {
			if f.doc == "" && types[f.typ] == nil {
				t.Errorf("%s %s has no comment", kind, f.path)
			}
		}
	}
}

// TestShapesLeaveOutNoField decodes documents with all fields of the Go types. None of them may be
// unknown.
func TestShapesLeaveOutNoField(t *testing.T) {
	for _, doc := range []any{&v1alpha1.Cluster{}, &v1alpha1.InstanceGroup{}} {
		v := reflect.ValueOf(doc).Elem()
		fill(v)
		v.FieldByName("APIVersion").SetString(v1alpha1.APIVersion)
		v.FieldByName("Kind").SetString(v.Type().Name())
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		set, fs := manifest.Parse(text)
		if len(fs) > 0 {
			t.Errorf("%s: %v", v.Type().Name(), fs)
		}
		var got any = set.Cluster
		if len(set.Groups) > 0 {
			got = set.Groups[0]
		}
		if diff := cmp.Diff(v.Interface(), got); diff != "" {
			t.Errorf("%s has lost fields:\n%s", v.Type().Name(), diff)
		}
	}
}

// fill sets every field of v.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Int:
		v.SetInt(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"), reflect.ValueOf("v"))
	default:
		panic("fill knows no " + v.Kind().String())
	}
}
