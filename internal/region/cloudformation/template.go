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

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Limits of a template, in bytes and numbers (CloudFormation's quotas).
const (
	maxBody      = 51200   // given in the request
	maxURL       = 1 << 20 // read from S3
	maxResources = 500
	maxOutputs   = 200
	maxParams    = 200
)

// tree is a JSON object.
type tree = map[string]any

// Template is a template that has been read. Its values still hold intrinsic functions.
type Template struct {
	Description string
	Metadata    any
	Parameters  map[string]parameter
	Mappings    map[string]map[string]tree
	Conditions  tree
	Resources   map[string]resourceSpec
	Outputs     map[string]outputSpec
}

// resourceSpec is a resource as a template describes it.
type resourceSpec struct {
	Type                string
	Properties          tree
	Metadata            any
	DependsOn           []string
	Condition           string
	DeletionPolicy      string
	UpdateReplacePolicy string
	CreationPolicy      tree
	UpdatePolicy        tree
}

type outputSpec struct {
	Description string
	Value       any
	Export      any // its name; nil exports nothing
	Condition   string
}

func invalid(format string, args ...any) error {
	return wire.Errorf("ValidationError", format, args...)
}

func malformed(format string, args ...any) error {
	return invalid("Template format error: "+format, args...)
}

// Parse reads a template in JSON or YAML and checks what can be checked without parameters.
func Parse(body string) (*Template, error) {
	doc, err := decode(body)
	if err != nil {
		return nil, err
	}
	t := &Template{
		Parameters: map[string]parameter{}, Mappings: map[string]map[string]tree{}, Conditions: tree{},
		Resources: map[string]resourceSpec{}, Outputs: map[string]outputSpec{},
	}
	var unknown []string
	for _, name := range record.Keys(doc) {
		read := t.sections()[name]
		if read == nil {
			unknown = append(unknown, name)
			continue
		}
		if err := read(doc[name]); err != nil {
			return nil, err
		}
	}
	if len(unknown) > 0 {
		return nil, malformed("Invalid template property or properties [%s]", strings.Join(unknown, ", "))
	}
	if len(t.Resources) == 0 {
		return nil, malformed("At least one Resources member must be defined.")
	}
	return t, t.check()
}

// decode reads JSON, or YAML where the text does not begin like JSON.
func decode(body string) (tree, error) {
	if !strings.HasPrefix(strings.TrimSpace(body), "{") {
		return decodeYAML(body)
	}
	d := json.NewDecoder(bytes.NewReader([]byte(body)))
	d.UseNumber()
	var doc any
	if err := d.Decode(&doc); err != nil {
		return nil, malformed("JSON not well-formed. (%v)", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, malformed("JSON not well-formed. (text after the document)")
	}
	m, ok := doc.(tree)
	if !ok {
		return nil, malformed("unsupported structure.")
	}
	return m, nil
}

// sections reads each part of a template.
func (t *Template) sections() map[string]func(any) error {
	return map[string]func(any) error{
		"AWSTemplateFormatVersion": func(v any) error {
			if v != "2010-09-09" {
				return malformed("[/AWSTemplateFormatVersion] unsupported value %v", v)
			}
			return nil
		},
		"Description": func(v any) (err error) {
			t.Description, err = textAt("/Description", v)
			if len(t.Description) > 1024 {
				return malformed("'Description' length is greater than 1024.")
			}
			return err
		},
		"Metadata":   func(v any) error { t.Metadata = v; return nil },
		"Parameters": func(v any) error { return each("Parameters", v, t.readParameter) },
		"Mappings":   func(v any) error { return each("Mappings", v, t.readMapping) },
		"Conditions": func(v any) error {
			return each("Conditions", v, func(name string, c any) error { t.Conditions[name] = c; return nil })
		},
		"Resources": func(v any) error { return each("Resources", v, t.readResource) },
		"Outputs":   func(v any) error { return each("Outputs", v, t.readOutput) },
		"Rules":     func(any) error { return malformed("this region does not evaluate Rules") },
		"Transform": func(any) error { return malformed("this region knows no macros, so no Transform") },
	}
}

// each calls read for every member of a section.
func each(section string, v any, read func(name string, v any) error) error {
	m, ok := v.(tree)
	if !ok {
		return malformed("[/%s] every %s member must be an object", section, section)
	}
	for _, name := range record.Keys(m) {
		if section != "Conditions" && !alphanumeric(name) {
			return malformed("%s name %s is non alphanumeric.", strings.TrimSuffix(section, "s"), name)
		}
		if err := read(name, m[name]); err != nil {
			return err
		}
	}
	return nil
}

// alphanumeric tells whether a name is of 1 to 255 letters and digits. It is asked of every name in a template.
func alphanumeric(name string) bool {
	other := func(r rune) bool { return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	return name != "" && len(name) <= 255 && !strings.ContainsFunc(name, other)
}

func textAt(at string, v any) (string, error) {
	s, ok := text(v)
	if !ok {
		return "", malformed("[%s] must be a string", at)
	}
	return s, nil
}

func (t *Template) readMapping(name string, v any) error {
	t.Mappings[name] = map[string]tree{}
	top, ok := v.(tree)
	if !ok {
		return malformed("Every Mappings member %s must be a map", name)
	}
	for key, second := range top {
		m, ok := second.(tree)
		if !ok {
			return malformed("Every Mappings attribute must be a String or a List: %s.%s", name, key)
		}
		t.Mappings[name][key] = m
	}
	return nil
}

func (t *Template) readOutput(name string, v any) error {
	m, ok := v.(tree)
	if !ok {
		return malformed("Every Outputs member must contain a Value object")
	}
	o := outputSpec{Value: m["Value"]}
	if o.Value == nil {
		return malformed("Every Outputs member must contain a Value object")
	}
	o.Description, _ = text(m["Description"])
	o.Condition, _ = text(m["Condition"])
	if e, ok := m["Export"].(tree); ok {
		if o.Export = e["Name"]; o.Export == nil {
			return malformed("Output %s: Export needs a Name", name)
		}
	}
	for k := range m {
		if !slices.Contains([]string{"Value", "Description", "Condition", "Export"}, k) {
			return malformed("Output %s has an unknown member %s", name, k)
		}
	}
	t.Outputs[name] = o
	return nil
}

// policies are the values that DeletionPolicy and UpdateReplacePolicy may have.
func policies(attribute string) []string {
	if attribute == "DeletionPolicy" {
		return []string{"", "Delete", "Retain", "Snapshot", "RetainExceptOnCreate"}
	}
	return []string{"", "Delete", "Retain", "Snapshot"}
}

func (t *Template) readResource(name string, v any) error {
	m, ok := v.(tree)
	if !ok {
		return malformed("[/Resources/%s] resource definition is malformed", name)
	}
	var r resourceSpec
	var err error
	for _, k := range record.Keys(m) {
		if err = r.read(name, k, m[k]); err != nil {
			return err
		}
	}
	if r.Type == "" {
		return malformed("[/Resources/%s] Every Resources object must contain a Type member.", name)
	}
	if r.Properties == nil {
		r.Properties = tree{}
	}
	t.Resources[name] = r
	return nil
}

// read takes one attribute of a resource.
func (r *resourceSpec) read(name, attribute string, v any) (err error) {
	at := fmt.Sprintf("/Resources/%s/%s", name, attribute)
	switch attribute {
	case "Type":
		r.Type, err = textAt(at, v)
	case "Condition":
		r.Condition, err = textAt(at, v)
	case "DeletionPolicy", "UpdateReplacePolicy":
		var p string
		if p, err = textAt(at, v); err == nil && !slices.Contains(policies(attribute), p) {
			err = malformed("Unrecognized %s %s for resource %s", attribute, p, name)
		}
		if attribute == "DeletionPolicy" {
			r.DeletionPolicy = p
		} else {
			r.UpdateReplacePolicy = p
		}
	case "DependsOn":
		r.DependsOn, err = textsAt(at, v)
	case "Metadata":
		r.Metadata = v
	case "Properties", "CreationPolicy", "UpdatePolicy":
		m, ok := v.(tree)
		if !ok {
			return malformed("[%s] must be an object", at)
		}
		*map[string]*tree{"Properties": &r.Properties, "CreationPolicy": &r.CreationPolicy, "UpdatePolicy": &r.UpdatePolicy}[attribute] = m
	default:
		return invalid("Invalid template resource property '%s'", attribute)
	}
	return err
}

func textsAt(at string, v any) ([]string, error) {
	if s, ok := v.(string); ok {
		return []string{s}, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, malformed("[%s] must be a string or a list of strings", at)
	}
	var out []string
	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			return nil, malformed("[%s] must be a string or a list of strings", at)
		}
		out = append(out, s)
	}
	return out, nil
}

// text is a scalar as CloudFormation writes it; false for anything else.
func text(v any) (string, bool) {
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
