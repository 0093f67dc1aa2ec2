// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// schemaText has the schemas of the types in [Lookup]: those of CloudFormation, reduced to what is used here.
// TestSchemas generates it from test/referencedata/data/cloudformation-types.json.
//
//go:embed types.json
var schemaText []byte

// typeSchema is the published schema of a type, reduced to what is used here.
type typeSchema struct {
	Properties  map[string]string       `json:"properties"`
	Required    []string                `json:"required,omitempty"`
	CreateOnly  []string                `json:"createOnlyProperties,omitempty"`
	Conditional []string                `json:"conditionalCreateOnlyProperties,omitempty"`
	ReadOnly    []string                `json:"readOnlyProperties,omitempty"`
	Identifier  []string                `json:"primaryIdentifier,omitempty"`
	TagProperty string                  `json:"tagProperty,omitempty"`
	Additional  bool                    `json:"additionalProperties,omitempty"`
	Definitions map[string]nestedSchema `json:"definitions,omitempty"`
}

// nestedSchema is the schema of a nested property type.
type nestedSchema struct {
	Properties map[string]string `json:"properties"`
	Required   []string          `json:"required,omitempty"`
}

//nolint:gochecknoglobals // parsed once, of what is embedded
var schemas = sync.OnceValue(func() map[string]typeSchema {
	out := map[string]typeSchema{}
	if err := json.Unmarshal(schemaText, &out); err != nil {
		panic(fmt.Sprintf("the embedded schemas are broken: %v", err)) // embedded at build time
	}

	return out
})

// HasStackTags reports whether resources of a type have tags, so that a change of the stack's tags updates
// them.
func HasStackTags(typeName string) bool { return schemas()[typeName].TagProperty != "" }

// propertyErrors collects the violations of a schema.
type propertyErrors struct{ list []string }

func (p *propertyErrors) add(at, format string, args ...any) {
	p.list = append(p.list, "#"+at+": "+fmt.Sprintf(format, args...))
}

// CoerceProperties checks evaluated properties against the schema of a type, and converts each scalar to the
// type in the schema, because a template may write a number as a string. Unknown values are kept. It returns
// the violations.
func CoerceProperties(kind string, props template.Object) (template.Object, []string) {
	s := schemas()[kind]
	if s.Properties == nil {
		return props, nil
	}

	var p propertyErrors

	for _, name := range sdkshape.SortedKeys(props) {
		if slices.Contains(s.ReadOnly, name) && !slices.Contains(s.Required, name) {
			p.add("", "encountered read-only property [%s]", name)
		}
	}

	out := s.coerceObject("", nestedSchema{s.Properties, s.Required}, props, &p)

	return out, p.list
}

func (s typeSchema) coerceObject(
	at string,
	sh nestedSchema,
	props template.Object,
	p *propertyErrors,
) template.Object {
	out := template.Object{}
	for _, name := range sdkshape.SortedKeys(props) {
		kind, ok := sh.Properties[name]
		if !ok && s.Additional && at == "" {
			out[name] = props[name]
			continue
		}

		if !ok {
			p.add(at, "extraneous key [%s] is not permitted", name)
			continue
		}

		out[name] = s.coerceValue(at+"/"+name, kind, props[name], p)
	}

	for _, name := range sh.Required {
		if _, ok := props[name]; !ok {
			p.add(at, "required key [%s] not found", name)
		}
	}

	return out
}

func (s typeSchema) coerceValue(at, kind string, v any, p *propertyErrors) any {
	if template.IsUnknown(v) || v == nil {
		return v
	}

	if a, b, ok := strings.Cut(kind, "|"); ok {
		var first propertyErrors
		out := s.coerceValue(at, a, v, &first)
		if len(first.list) == 0 {
			return out
		}

		return s.coerceValue(at, b, v, p)
	}

	if inner, ok := strings.CutPrefix(kind, "array<"); ok {
		return s.coerceList(at, strings.TrimSuffix(inner, ">"), v, p)
	}

	if inner, ok := strings.CutPrefix(kind, "map<"); ok {
		return s.coerceMap(at, strings.TrimSuffix(inner, ">"), v, p)
	}

	if sh, ok := s.Definitions[kind]; ok {
		m, ok := v.(template.Object)
		if !ok {
			p.add(at, "expected type: JSONObject, found: %s", jsonTypeName(v))
			return v
		}

		return s.coerceObject(at, sh, m, p)
	}

	return coerceScalar(at, kind, v, p)
}

func (s typeSchema) coerceList(at, inner string, v any, p *propertyErrors) any {
	list, ok := v.([]any)
	if !ok {
		p.add(at, "expected type: JSONArray, found: %s", jsonTypeName(v))
		return v
	}

	out := make([]any, len(list))
	for i, e := range list {
		out[i] = s.coerceValue(at+"/"+strconv.Itoa(i), inner, e, p)
	}

	return out
}

func (s typeSchema) coerceMap(at, inner string, v any, p *propertyErrors) any {
	m, ok := v.(template.Object)
	if !ok {
		p.add(at, "expected type: JSONObject, found: %s", jsonTypeName(v))
		return v
	}

	out := template.Object{}
	for _, k := range sdkshape.SortedKeys(m) {
		out[k] = s.coerceValue(at+"/"+k, inner, m[k], p)
	}

	return out
}

// coerceScalar converts a scalar to a type of the schema.
func coerceScalar(at, kind string, v any, p *propertyErrors) any {
	if kind == "object" {
		if _, ok := v.(template.Object); !ok {
			p.add(at, "expected type: JSONObject, found: %s", jsonTypeName(v))
		}

		return v
	}

	t, ok := template.ScalarText(v)
	wants := map[string]string{"integer": "Number", "number": "Number", "boolean": "Boolean", "string": "String"}[kind]
	if !ok {
		p.add(at, "expected type: %s, found: %s", wants, jsonTypeName(v))
		return v
	}

	var err error
	var out any = t

	switch kind {
	case "integer":
		out, err = strconv.ParseInt(t, 10, 64)
	case "number":
		out, err = strconv.ParseFloat(t, 64)
	case "boolean":
		out, err = strconv.ParseBool(strings.ToLower(t))
	}

	if err != nil {
		p.add(at, "expected type: %s, found: %s", wants, jsonTypeName(v))
	}

	return out
}

// jsonTypeName returns the type of a value as the messages of CloudFormation name it.
func jsonTypeName(v any) string {
	switch v.(type) {
	case template.Object:
		return "JSONObject"
	case []any:
		return "JSONArray"
	case string:
		return "String"
	case bool:
		return "Boolean"
	}

	return "Number"
}

// firstPathStep returns the first step of a path in a schema.
func firstPathStep(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

// RequiresRecreation returns whether a change of a property replaces the resource: Always, Conditionally or
// Never.
func RequiresRecreation(kind, property string) string {
	s := schemas()[kind]
	has := func(paths []string) bool {
		return slices.ContainsFunc(paths, func(p string) bool { return firstPathStep(p) == property })
	}
	switch {
	case has(s.CreateOnly), slices.Contains(table()[kind].ReplacementProperties, property):
		return "Always"
	case has(s.Conditional):
		return "Conditionally"
	}

	return "Never"
}

// ChangedProperties returns the properties whose values differ, sorted. An unknown value counts as different.
func ChangedProperties(before, after template.Object) []string {
	var out []string
	for _, name := range sdkshape.SortedKeys(after) {
		if old, ok := before[name]; !ok || template.CanonicalText(old) != template.CanonicalText(after[name]) ||
			template.HasUnknown(after[name]) {
			out = append(out, name)
		}
	}

	for _, name := range sdkshape.SortedKeys(before) {
		if _, ok := after[name]; !ok {
			out = append(out, name)
		}
	}

	slices.Sort(out)

	return out
}
