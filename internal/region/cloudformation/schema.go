// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/internal/region/record"
)

// schemaText holds the properties of the types in [types]: CloudFormation's own schemas, cut to what is used here.
// TestSchemas makes it of test/referencedata/data/cloudformation-types.json.
//
//go:embed types.json
var schemaText []byte

// schema is what CloudFormation publishes of a type.
type schema struct {
	Properties  map[string]string `json:"properties"`
	Required    []string          `json:"required,omitempty"`
	CreateOnly  []string          `json:"createOnlyProperties,omitempty"`
	Conditional []string          `json:"conditionalCreateOnlyProperties,omitempty"`
	ReadOnly    []string          `json:"readOnlyProperties,omitempty"`
	Identifier  []string          `json:"primaryIdentifier,omitempty"`
	TagProperty string            `json:"tagProperty,omitempty"`
	Definitions map[string]shape  `json:"definitions,omitempty"`
}

// shape is a nested property type.
type shape struct {
	Properties map[string]string `json:"properties"`
	Required   []string          `json:"required,omitempty"`
}

//nolint:gochecknoglobals // parsed once, of what is embedded
var schemas = sync.OnceValue(func() map[string]schema {
	out := map[string]schema{}
	if err := json.Unmarshal(schemaText, &out); err != nil {
		panic(fmt.Sprintf("the embedded schemas are broken: %v", err)) // built in: broken code
	}
	return out
})

// hasAttribute tells whether Fn::GetAtt can ask for an attribute of a type.
func hasAttribute(kind, name string) bool {
	return slices.Contains(schemas()[kind].ReadOnly, strings.ReplaceAll(name, ".", "/")) || slices.Contains(types()[kind].attributes, name)
}

// problems collects what is wrong with a resource's properties.
type problems struct{ list []string }

func (p *problems) add(at, format string, args ...any) {
	p.list = append(p.list, "#"+at+": "+fmt.Sprintf(format, args...))
}

// conform checks evaluated properties against the type's schema and gives every value the type that it should have: a
// template may write a number as a text. What is not known yet is passed on.
func conform(kind string, props tree) (tree, []string) {
	s := schemas()[kind]
	if s.Properties == nil {
		return props, nil
	}
	var p problems
	for _, name := range record.Keys(props) {
		if slices.Contains(s.ReadOnly, name) && !slices.Contains(s.Required, name) {
			p.add("", "encountered read-only property [%s]", name)
		}
	}
	out := s.object("", shape{s.Properties, s.Required}, props, &p)
	return out, p.list
}

func (s schema) object(at string, sh shape, props tree, p *problems) tree {
	out := tree{}
	for _, name := range record.Keys(props) {
		kind, ok := sh.Properties[name]
		if !ok {
			p.add(at, "extraneous key [%s] is not permitted", name)
			continue
		}
		out[name] = s.value(at+"/"+name, kind, props[name], p)
	}
	for _, name := range sh.Required {
		if _, ok := props[name]; !ok {
			p.add(at, "required key [%s] not found", name)
		}
	}
	return out
}

func (s schema) value(at, kind string, v any, p *problems) any {
	if isUnknown(v) || v == nil {
		return v
	}
	if a, b, ok := strings.Cut(kind, "|"); ok {
		var first problems
		out := s.value(at, a, v, &first)
		if len(first.list) == 0 {
			return out
		}
		return s.value(at, b, v, p)
	}
	if inner, ok := strings.CutPrefix(kind, "array<"); ok {
		return s.list(at, strings.TrimSuffix(inner, ">"), v, p)
	}
	if inner, ok := strings.CutPrefix(kind, "map<"); ok {
		return s.mapping(at, strings.TrimSuffix(inner, ">"), v, p)
	}
	if sh, ok := s.Definitions[kind]; ok {
		m, ok := v.(tree)
		if !ok {
			p.add(at, "expected type: JSONObject, found: %s", found(v))
			return v
		}
		return s.object(at, sh, m, p)
	}
	return plain(at, kind, v, p)
}

func (s schema) list(at, inner string, v any, p *problems) any {
	list, ok := v.([]any)
	if !ok {
		p.add(at, "expected type: JSONArray, found: %s", found(v))
		return v
	}
	out := make([]any, len(list))
	for i, e := range list {
		out[i] = s.value(at+"/"+strconv.Itoa(i), inner, e, p)
	}
	return out
}

func (s schema) mapping(at, inner string, v any, p *problems) any {
	m, ok := v.(tree)
	if !ok {
		p.add(at, "expected type: JSONObject, found: %s", found(v))
		return v
	}
	out := tree{}
	for _, k := range record.Keys(m) {
		out[k] = s.value(at+"/"+k, inner, m[k], p)
	}
	return out
}

// plain turns a scalar into the type that it should have.
func plain(at, kind string, v any, p *problems) any {
	if kind == "object" {
		if _, ok := v.(tree); !ok {
			p.add(at, "expected type: JSONObject, found: %s", found(v))
		}
		return v
	}
	t, ok := text(v)
	wants := map[string]string{"integer": "Number", "number": "Number", "boolean": "Boolean", "string": "String"}[kind]
	if !ok {
		p.add(at, "expected type: %s, found: %s", wants, found(v))
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
		p.add(at, "expected type: %s, found: %s", wants, found(v))
	}
	return out
}

// found is a value's type in the words of CloudFormation's messages.
func found(v any) string {
	switch v.(type) {
	case tree:
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

// top is the first step of a schema's path.
func top(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

// recreation says whether a change of a property replaces the resource: Always, Conditionally or Never.
func recreation(kind, property string) string {
	s := schemas()[kind]
	has := func(paths []string) bool {
		return slices.ContainsFunc(paths, func(p string) bool { return top(p) == property })
	}
	switch {
	case has(s.CreateOnly), slices.Contains(types()[kind].replaced, property):
		return "Always"
	case has(s.Conditional):
		return "Conditionally"
	}
	return "Never"
}

// differing are the properties whose values differ, in order.
func differing(before, after tree) []string {
	var out []string
	for _, name := range record.Keys(after) {
		if old, ok := before[name]; !ok || canonical(old) != canonical(after[name]) || hasUnknown(after[name]) {
			out = append(out, name)
		}
	}
	for _, name := range record.Keys(before) {
		if _, ok := after[name]; !ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
