// SPDX-License-Identifier: Apache-2.0

// Package template implements the language of CloudFormation templates: it reads JSON and YAML, checks a
// template, evaluates its intrinsic functions and finds the references between its resources. It is pure: it
// knows no stack, no clock and no service. The caller passes the catalog of resource types to [Parse], and
// functions that return the values of resources to [Scope].
package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// Object is a JSON object.
type Object = map[string]any

// Template is a parsed template. Its values still contain intrinsic functions.
type Template struct {
	Description string                       // at most 1024 bytes
	Metadata    any                          // not evaluated
	Parameters  map[string]ParameterSpec     // by name
	Mappings    map[string]map[string]Object // by map name and top-level key
	Conditions  Object                       // not evaluated, by name
	Resources   map[string]ResourceSpec      // by logical ID
	Outputs     map[string]OutputSpec        // by name
}

// ResourceSpec is a resource in a template.
type ResourceSpec struct {
	Type                string   // such as AWS::EC2::VPC
	Properties          Object   // not evaluated; empty, not nil, if there are none
	Metadata            any      // not evaluated
	DependsOn           []string // logical IDs
	Condition           string   // name of a condition; empty for none
	DeletionPolicy      any      // a string or a function, not evaluated; nil for none
	UpdateReplacePolicy any      // a string or a function, not evaluated; nil for none
	CreationPolicy      Object   // not evaluated
	UpdatePolicy        Object   // not evaluated
}

// OutputSpec is an output in a template.
type OutputSpec struct {
	Description string
	Value       any    // not evaluated
	Export      any    // name of the export, not evaluated; nil for none
	Condition   string // name of a condition; empty for none
}

// Catalog lists the resource types that a template may use.
type Catalog interface {
	// HasType reports whether the region has a resource type, such as AWS::EC2::VPC.
	HasType(typeName string) bool
	// HasAttribute reports whether Fn::GetAtt can return an attribute of a type.
	HasAttribute(typeName, attribute string) bool
	// SupportsSnapshot reports whether a resource of the type may have the deletion policy Snapshot.
	SupportsSnapshot(typeName string) bool
}

// Parse reads a template in JSON or YAML and checks everything that does not depend on the values of its
// parameters. An error is a *wire.Error with the code ValidationError.
func Parse(body string, types Catalog) (*Template, error) {
	doc, err := decodeTemplate(body)
	if err != nil {
		return nil, err
	}

	t := &Template{
		Parameters: map[string]ParameterSpec{},
		Mappings:   map[string]map[string]Object{},
		Conditions: Object{},
		Resources:  map[string]ResourceSpec{},
		Outputs:    map[string]OutputSpec{},
	}

	var unknown []string

	for _, name := range sdkshape.SortedKeys(doc) {
		read := t.sectionReaders()[name]
		if read == nil {
			unknown = append(unknown, name)
			continue
		}

		if err := read(doc[name]); err != nil {
			return nil, err
		}
	}

	if len(unknown) > 0 {
		return nil, FormatError("Invalid template property or properties [%s]", strings.Join(unknown, ", "))
	}

	if len(t.Resources) == 0 {
		return nil, FormatError("At least one Resources member must be defined.")
	}

	return t, t.validate(types)
}

// newJSONError returns the error of a template that is not JSON, with the place after the character at which it is not.
func newJSONError(body string, d *json.Decoder, err error) error {
	offset := d.InputOffset()
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = e.Offset
	}

	if errors.Is(err, io.ErrUnexpectedEOF) {
		offset = int64(len(body))
	}

	before := body[:min(max(offset, 0), int64(len(body)))]

	return FormatError(
		"JSON not well-formed. (line %d, column %d)",
		1+strings.Count(before, "\n"),
		len(before)-strings.LastIndex(before, "\n"),
	)
}

// decodeTemplate decodes JSON if the text begins with a brace, and YAML otherwise.
func decodeTemplate(body string) (Object, error) {
	if !strings.HasPrefix(strings.TrimSpace(body), "{") {
		return decodeYAML(body)
	}

	d := json.NewDecoder(bytes.NewReader([]byte(body)))
	d.UseNumber()
	var doc any
	if err := d.Decode(&doc); err != nil {
		return nil, newJSONError(body, d, err)
	}

	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, newJSONError(body, d, err)
	}

	m, ok := doc.(Object)
	if !ok {
		return nil, FormatError("unsupported structure.")
	}

	return m, nil
}

// sectionReaders returns the function that reads each section of a template.
func (t *Template) sectionReaders() map[string]func(any) error {
	return map[string]func(any) error{
		"AWSTemplateFormatVersion": func(v any) error {
			if v != "2010-09-09" {
				return FormatError("[/AWSTemplateFormatVersion] unsupported value %v", v)
			}

			return nil
		},
		"Description": func(v any) (err error) {
			t.Description, err = requireString("/Description", v)
			if len(t.Description) > maxDescriptionBytes {
				return FormatError("'Description' length is greater than 1024.")
			}

			return err
		},
		"Metadata":   func(v any) error { t.Metadata = v; return nil },
		"Parameters": func(v any) error { return forEachMember("Parameters", v, t.readParameter) },
		"Mappings":   func(v any) error { return forEachMember("Mappings", v, t.readMapping) },
		"Conditions": func(v any) error {
			return forEachMember(
				"Conditions",
				v,
				func(name string, c any) error { t.Conditions[name] = c; return nil },
			)
		},
		"Resources": func(v any) error { return forEachMember("Resources", v, t.readResource) },
		"Outputs":   func(v any) error { return forEachMember("Outputs", v, t.readOutput) },
		"Rules":     func(any) error { return FormatError("this region does not evaluate Rules") },
		"Transform": func(any) error { return FormatError("this region does not support macros, so no Transform") },
	}
}

// forEachMember calls read for each member of a section, sorted by name.
func forEachMember(section string, v any, read func(name string, v any) error) error {
	m, ok := v.(Object)
	if !ok {
		return FormatError("[/%s] every %s member must be an object", section, section)
	}

	for _, name := range sdkshape.SortedKeys(m) {
		if section != "Conditions" && !isAlphanumeric(name) {
			return FormatError("%s name %s is non alphanumeric.", strings.TrimSuffix(section, "s"), name)
		}

		if err := read(name, m[name]); err != nil {
			return err
		}
	}

	return nil
}

// isAlphanumeric reports whether a name has 1 to 255 letters and digits. It is called for every name of a
// template, so it does not use a regular expression.
func isAlphanumeric(name string) bool {
	other := func(r rune) bool { return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	return name != "" && len(name) <= 255 && !strings.ContainsFunc(name, other)
}

func requireString(at string, v any) (string, error) {
	s, ok := ScalarText(v)
	if !ok {
		return "", FormatError("[%s] must be a string", at)
	}

	return s, nil
}

func (t *Template) readMapping(name string, v any) error {
	t.Mappings[name] = map[string]Object{}
	top, ok := v.(Object)
	if !ok {
		return FormatError("Every Mappings member %s must be a map", name)
	}

	for key, second := range top {
		m, ok := second.(Object)
		if !ok {
			return FormatError("Every Mappings member %s must be a map", key)
		}

		for _, value := range m {
			if !isMappingValue(value) {
				return FormatError("Every Mappings attribute must be a String or a List.")
			}
		}

		t.Mappings[name][key] = m
	}

	return nil
}

// isMappingValue reports whether a mapping can have a value: a text or a list of texts.
func isMappingValue(v any) bool {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}

	return !slices.ContainsFunc(list, func(e any) bool {
		_, isText := ScalarText(e)
		return !isText
	})
}

func (t *Template) readOutput(name string, v any) error {
	m, ok := v.(Object)
	if !ok {
		return FormatError("Every Outputs member must contain a Value object")
	}

	value, set := m["Value"]
	if set && value == nil {
		return ValidationError("[/Outputs/%s/Value] 'null' values are not allowed in templates", name)
	}

	o := OutputSpec{Value: value}
	if !set {
		return FormatError("Every Outputs member must contain a Value object")
	}

	o.Description, _ = ScalarText(m["Description"])
	o.Condition, _ = ScalarText(m["Condition"])
	if e, ok := m["Export"].(Object); ok {
		if o.Export = e["Name"]; o.Export == nil {
			return FormatError("Output %s: Export needs a Name", name)
		}
	}

	for k := range m {
		if !slices.Contains([]string{"Value", "Description", "Condition", "Export"}, k) {
			return FormatError("Output %s has an unknown member %s", name, k)
		}
	}

	t.Outputs[name] = o

	return nil
}

func (t *Template) readResource(name string, v any) error {
	m, ok := v.(Object)
	if !ok {
		return FormatError("[/Resources/%s] resource definition is malformed", name)
	}

	var r ResourceSpec
	var err error

	for _, k := range sdkshape.SortedKeys(m) {
		if err = r.readAttribute(name, k, m[k]); err != nil {
			return err
		}
	}

	if r.Type == "" {
		return FormatError("[/Resources/%s] Every Resources object must contain a Type member.", name)
	}

	if r.Properties == nil {
		r.Properties = Object{}
	}

	t.Resources[name] = r

	return nil
}

// readAttribute reads one attribute of a resource.
func (r *ResourceSpec) readAttribute(name, attribute string, v any) (err error) {
	at := fmt.Sprintf("/Resources/%s/%s", name, attribute)
	switch attribute {
	case "Type":
		r.Type, err = requireString(at, v)
	case "Condition":
		r.Condition, err = requireString(at, v)
	case deletionPolicy:
		r.DeletionPolicy = v
	case updateReplacePolicy:
		r.UpdateReplacePolicy = v
	case "DependsOn":
		r.DependsOn, err = requireStrings(at, v)
	case "Metadata":
		r.Metadata = v
	case "Properties", "CreationPolicy", "UpdatePolicy":
		m, ok := v.(Object)
		if !ok {
			return FormatError("[%s] must be an object", at)
		}

		*map[string]*Object{"Properties": &r.Properties, "CreationPolicy": &r.CreationPolicy, "UpdatePolicy": &r.UpdatePolicy}[attribute] = m

	default:
		return ValidationError("Invalid template resource property '%s'", attribute)
	}

	return err
}

func requireStrings(at string, v any) ([]string, error) {
	if s, ok := v.(string); ok {
		return []string{s}, nil
	}

	list, ok := v.([]any)
	if !ok {
		return nil, FormatError("[%s] must be a string or a list of strings", at)
	}

	var out []string

	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			return nil, FormatError("[%s] must be a string or a list of strings", at)
		}

		out = append(out, s)
	}

	return out, nil
}
