// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Limits of a template, in bytes and numbers (CloudFormation's quotas).
const (
	maxInlineTemplate = 51200   // given in the request
	maxS3Template     = 1 << 20 // read from S3
	maxResources      = 500
	maxOutputs        = 200
	maxParameters     = 200
)

// object is a JSON object.
type object = map[string]any

// Template is a template that has been read. Its values still hold intrinsic functions.
type Template struct {
	Description string
	Metadata    any
	Parameters  map[string]parameterSpec
	Mappings    map[string]map[string]object
	Conditions  object
	Resources   map[string]resourceSpec
	Outputs     map[string]outputSpec
}

// resourceSpec is a resource as a template describes it.
type resourceSpec struct {
	Type                string
	Properties          object
	Metadata            any
	DependsOn           []string
	Condition           string
	DeletionPolicy      string
	UpdateReplacePolicy string
	CreationPolicy      object
	UpdatePolicy        object
}

type outputSpec struct {
	Description string
	Value       any
	Export      any // its name; nil exports nothing
	Condition   string
}

func validationError(format string, args ...any) error {
	return wire.Errorf("ValidationError", format, args...)
}

func formatError(format string, args ...any) error {
	return validationError("Template format error: "+format, args...)
}

// Parse reads a template in JSON or YAML and checks what can be checked without parameters.
func Parse(body string) (*Template, error) {
	doc, err := decodeTemplate(body)
	if err != nil {
		return nil, err
	}

	t := &Template{
		Parameters: map[string]parameterSpec{},
		Mappings:   map[string]map[string]object{},
		Conditions: object{},
		Resources:  map[string]resourceSpec{},
		Outputs:    map[string]outputSpec{},
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
		return nil, formatError("Invalid template property or properties [%s]", strings.Join(unknown, ", "))
	}

	if len(t.Resources) == 0 {
		return nil, formatError("At least one Resources member must be defined.")
	}

	return t, t.validate()
}

// decodeTemplate reads JSON, or YAML where the text does not begin like JSON.
func decodeTemplate(body string) (object, error) {
	if !strings.HasPrefix(strings.TrimSpace(body), "{") {
		return decodeYAML(body)
	}

	d := json.NewDecoder(bytes.NewReader([]byte(body)))
	d.UseNumber()
	var doc any
	if err := d.Decode(&doc); err != nil {
		return nil, formatError("JSON not well-formed. (%v)", err)
	}

	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, formatError("JSON not well-formed. (text after the document)")
	}

	m, ok := doc.(object)
	if !ok {
		return nil, formatError("unsupported structure.")
	}

	return m, nil
}

// sectionReaders reads each part of a template.
func (t *Template) sectionReaders() map[string]func(any) error {
	return map[string]func(any) error{
		"AWSTemplateFormatVersion": func(v any) error {
			if v != "2010-09-09" {
				return formatError("[/AWSTemplateFormatVersion] unsupported value %v", v)
			}

			return nil
		},
		"Description": func(v any) (err error) {
			t.Description, err = requireString("/Description", v)
			if len(t.Description) > 1024 {
				return formatError("'Description' length is greater than 1024.")
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
		"Rules":     func(any) error { return formatError("this region does not evaluate Rules") },
		"Transform": func(any) error { return formatError("this region knows no macros, so no Transform") },
	}
}

// forEachMember calls read for every member of a section.
func forEachMember(section string, v any, read func(name string, v any) error) error {
	m, ok := v.(object)
	if !ok {
		return formatError("[/%s] every %s member must be an object", section, section)
	}

	for _, name := range sdkshape.SortedKeys(m) {
		if section != "Conditions" && !isAlphanumeric(name) {
			return formatError("%s name %s is non alphanumeric.", strings.TrimSuffix(section, "s"), name)
		}

		if err := read(name, m[name]); err != nil {
			return err
		}
	}

	return nil
}

// isAlphanumeric tells whether a name is of 1 to 255 letters and digits. It is asked of every name in a template.
func isAlphanumeric(name string) bool {
	other := func(r rune) bool { return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	return name != "" && len(name) <= 255 && !strings.ContainsFunc(name, other)
}

func requireString(at string, v any) (string, error) {
	s, ok := scalarText(v)
	if !ok {
		return "", formatError("[%s] must be a string", at)
	}

	return s, nil
}

func (t *Template) readMapping(name string, v any) error {
	t.Mappings[name] = map[string]object{}
	top, ok := v.(object)
	if !ok {
		return formatError("Every Mappings member %s must be a map", name)
	}

	for key, second := range top {
		m, ok := second.(object)
		if !ok {
			return formatError("Every Mappings attribute must be a String or a List: %s.%s", name, key)
		}

		t.Mappings[name][key] = m
	}

	return nil
}

func (t *Template) readOutput(name string, v any) error {
	m, ok := v.(object)
	if !ok {
		return formatError("Every Outputs member must contain a Value object")
	}

	o := outputSpec{Value: m["Value"]}
	if o.Value == nil {
		return formatError("Every Outputs member must contain a Value object")
	}

	o.Description, _ = scalarText(m["Description"])
	o.Condition, _ = scalarText(m["Condition"])
	if e, ok := m["Export"].(object); ok {
		if o.Export = e["Name"]; o.Export == nil {
			return formatError("Output %s: Export needs a Name", name)
		}
	}

	for k := range m {
		if !slices.Contains([]string{"Value", "Description", "Condition", "Export"}, k) {
			return formatError("Output %s has an unknown member %s", name, k)
		}
	}

	t.Outputs[name] = o

	return nil
}

// allowedPolicies are the values that DeletionPolicy and UpdateReplacePolicy may have.
func allowedPolicies(attribute string) []string {
	if attribute == "DeletionPolicy" {
		return []string{"", "Delete", "Retain", "Snapshot", "RetainExceptOnCreate"}
	}

	return []string{"", "Delete", "Retain", "Snapshot"}
}

func (t *Template) readResource(name string, v any) error {
	m, ok := v.(object)
	if !ok {
		return formatError("[/Resources/%s] resource definition is malformed", name)
	}

	var r resourceSpec
	var err error

	for _, k := range sdkshape.SortedKeys(m) {
		if err = r.readAttribute(name, k, m[k]); err != nil {
			return err
		}
	}

	if r.Type == "" {
		return formatError("[/Resources/%s] Every Resources object must contain a Type member.", name)
	}

	if r.Properties == nil {
		r.Properties = object{}
	}

	t.Resources[name] = r

	return nil
}

// readAttribute takes one attribute of a resource.
func (r *resourceSpec) readAttribute(name, attribute string, v any) (err error) {
	at := fmt.Sprintf("/Resources/%s/%s", name, attribute)
	switch attribute {
	case "Type":
		r.Type, err = requireString(at, v)
	case "Condition":
		r.Condition, err = requireString(at, v)
	case "DeletionPolicy", "UpdateReplacePolicy":
		var p string
		if p, err = requireString(at, v); err == nil && !slices.Contains(allowedPolicies(attribute), p) {
			err = formatError("Unrecognized %s %s for resource %s", attribute, p, name)
		}

		if attribute == "DeletionPolicy" {
			r.DeletionPolicy = p
		} else {
			r.UpdateReplacePolicy = p
		}

	case "DependsOn":
		r.DependsOn, err = requireStrings(at, v)
	case "Metadata":
		r.Metadata = v
	case "Properties", "CreationPolicy", "UpdatePolicy":
		m, ok := v.(object)
		if !ok {
			return formatError("[%s] must be an object", at)
		}

		*map[string]*object{"Properties": &r.Properties, "CreationPolicy": &r.CreationPolicy, "UpdatePolicy": &r.UpdatePolicy}[attribute] = m

	default:
		return validationError("Invalid template resource property '%s'", attribute)
	}

	return err
}

func requireStrings(at string, v any) ([]string, error) {
	if s, ok := v.(string); ok {
		return []string{s}, nil
	}

	list, ok := v.([]any)
	if !ok {
		return nil, formatError("[%s] must be a string or a list of strings", at)
	}

	var out []string

	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			return nil, formatError("[%s] must be a string or a list of strings", at)
		}

		out = append(out, s)
	}

	return out, nil
}

// scalarText is a scalar as CloudFormation writes it; false for anything else.
func scalarText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return map[bool]string{true: "true", false: "false"}[v], true
	case json.Number:
		return v.String(), true
	case float64, int64, int:
		b, err := json.Marshal(v)
		return string(b), err == nil
	}

	return "", false
}
