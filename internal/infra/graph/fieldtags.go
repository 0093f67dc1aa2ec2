// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"reflect"
	"strings"
	"sync"
	"unicode"
)

// splitTag splits an aws tag into the property's name and its options.
func splitTag(tag string) (name, opts string) {
	name, opts, _ = strings.Cut(tag, ",")
	return name, opts
}

// taggedField is a field of a struct that is a property, without a value, and its place in the struct.
type taggedField struct {
	Field

	index int
}

// fieldsByType caches [taggedFieldsOf], by reflect.Type: to read the tags of a type takes longer than all else
// that a plan does with a resource.
var fieldsByType sync.Map //nolint:gochecknoglobals // the tags of a type do not change

// taggedFieldsOf returns the fields of a struct type that are properties, in declaration order. The result is
// shared: do not change it.
func taggedFieldsOf(t reflect.Type) []taggedField {
	if cached, ok := fieldsByType.Load(t); ok {
		fields, _ := cached.([]taggedField)
		return fields
	}

	var fields []taggedField
	for i := range t.NumField() {
		if f, tagged := fieldOf(t.Field(i)); tagged {
			fields = append(fields, taggedField{Field: f, index: i})
		}
	}

	fieldsByType.Store(t, fields)

	return fields
}

// valueIn returns the value of the field in v; false if it is unset and its zero is not enforced.
func (f taggedField) valueIn(v reflect.Value) (any, bool) {
	field := v.Field(f.index)
	if field.IsZero() && !f.EnforceZero {
		return nil, false
	}

	value := plainValue(field)
	if list, ok := value.([]any); ok && f.Unordered {
		value = sortedValues(list)
	}

	return value, true
}

// fieldOf returns the property that a field of a struct is; false if it is none.
func fieldOf(sf reflect.StructField) (Field, bool) {
	name, opts := splitTag(sf.Tag.Get("aws"))
	if name == "" {
		return Field{}, false
	}

	f := Field{
		Property:  name,
		IsJSON:    sf.Type == reflect.TypeFor[JSON](),
		Nested:    nestedIn(sf.Type),
		Reference: referenceOf(sf.Type),
	}

	f.setFlags(opts)
	f.Attribute = f.Render.parseTags(sf.Tag.Get("tf"), sf.Tag.Get("cfn"))
	if f.Attribute == "" {
		f.Attribute = Snake(name)
	}

	return f, true
}

// setFlags sets the flags of f from the options of its aws tag.
func (f *Field) setFlags(opts string) {
	for o := range strings.SplitSeq(opts, ",") {
		switch o {
		case "immutable":
			f.Immutable = true
		case "always":
			f.EnforceZero = true
		case "set":
			f.Unordered = true
		case "write":
			f.WriteOnly = true
		case "tags":
			f.IsTags = true
		case "whole":
			f.EnforceAbsence = true
		case "param":
			f.Render.IsParameter = true
		case "scale":
			f.Render.IsScaleParameter = true
		case "propagated":
			f.Render.Propagated = true
		}
	}
}

// parseTags reads the tf and cfn tags into r and returns Terraform's name; empty if the tf tag does not set
// it.
func (r *RenderHints) parseTags(tfTag, cfnTag string) string {
	attribute, tf, _ := strings.Cut(tfTag, ",")
	for o := range strings.SplitSeq(tf, ",") {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "inline":
			r.TerraformInline = true
		case "one":
			r.TerraformSingle = true
		case "options":
			r.TerraformOptions = true
		case "is":
			r.TerraformTrueValue = value
		case "map":
			r.TerraformMap = true
		case "apart":
			r.TerraformOwnType = value
		case "with":
			r.TerraformParentAttribute, r.TerraformParentIsList = strings.CutSuffix(value, "[]")
		}
	}

	r.parseCloudFormationTag(cfnTag)

	return attribute
}

// parseCloudFormationTag reads the cfn tag into r.
func (r *RenderHints) parseCloudFormationTag(tag string) {
	for o := range strings.SplitSeq(tag, ",") {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "text":
			r.CloudFormationString = true
		case "of":
			r.TagResourceType = value
		case "type":
			r.ParameterType = value
		case "-":
			r.CloudFormationOmit = true
		case "false":
			r.CloudFormationDefaultsFalse = true
		case "apart":
			r.CloudFormationOwnType = value
		case "with":
			r.CloudFormationParentProperty, r.CloudFormationParentIsList = strings.CutSuffix(value, "[]")
		}
	}
}

// Snake converts a property's name to Terraform's spelling: CidrBlock to cidr_block, DNSName to dns_name.
func Snake(s string) string {
	rs := []rune(s)
	var b strings.Builder
	for i, r := range rs {
		if unicode.IsUpper(r) && i > 0 {
			afterLower := !unicode.IsUpper(rs[i-1])
			beforeLower := i+1 < len(rs) && unicode.IsLower(rs[i+1])
			if afterLower || beforeLower {
				b.WriteByte('_')
			}
		}

		b.WriteRune(unicode.ToLower(r))
	}

	return b.String()
}
