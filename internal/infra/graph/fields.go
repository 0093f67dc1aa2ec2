// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Field is one property of a resource. Value is a string, bool, int64, Symbol or Text (as long as it holds symbols),
// or a []any or map[string]any of these.
type Field struct {
	Property       string        // as CloudFormation and the AWS API spell it
	Attribute      string        // as Terraform spells it
	Immutable      bool          // a change needs another resource
	EnforceZero    bool          // its zero is enforced
	Unordered      bool          // a list without order
	WriteOnly      bool          // cannot be read back
	IsTags         bool          // tags: others may add theirs
	IsJSON         bool          // a document, of type [JSON]
	EnforceAbsence bool          // its absence is enforced
	Reference      KindReference // what it refers to; nil if it is no reference and no list of them
	Render         RenderHints   // what only renderers of templates need
	Nested         []Field       // properties of a struct, or of the structs in a list, without values
	Value          any
}

// RenderHints is what renderers of templates need to know of a property beside its names.
type RenderHints struct {
	// IsParameter says that whoever uses the template may set another value; IsScaleParameter: unless it is of a control-plane slot.
	IsParameter, IsScaleParameter bool
	// ParameterType is CloudFormation's type of that parameter, where it has one of its own.
	ParameterType string
	// Propagated tags are given to what the resource makes.
	Propagated bool
	// CloudFormationString is a number that CloudFormation's schema spells as a string.
	CloudFormationString bool
	// TagResourceType is the ResourceType that CloudFormation wants beside tags.
	TagResourceType string
	// TerraformInline: Terraform has what it holds in the resource itself. One: Terraform takes the only member of the list.
	// Options: Terraform has an attribute for each key, see [Kind.TerraformOptions].
	TerraformInline, TerraformSingle, TerraformOptions bool
	// TerraformTrueValue: Terraform asks whether the value is this one.
	TerraformTrueValue string
	// CloudFormationOmit: CloudFormation is not given it. Apart is the type of the resource that it is to CloudFormation, and CloudFormationParentProperty
	// that one's property for what it belongs to.
	CloudFormationOmit                                  bool
	CloudFormationOwnType, CloudFormationParentProperty string
}

// Fields lists the properties of r that are set or always enforced, in declaration order.
// This file and fill.go hold the only reflection over resources.
func Fields(r Resource) []Field {
	v := reflect.ValueOf(r)
	var fs []Field
	for i := range v.NumField() {
		value, set := fieldValue(v, i)
		if !set {
			continue
		}

		f, _ := fieldOf(v.Type().Field(i))
		f.Value = value
		fs = append(fs, f)
	}

	return fs
}

// fieldValue returns the value of v's field i, and whether it is a property that is set or always enforced.
func fieldValue(v reflect.Value, i int) (any, bool) {
	name, opts := splitTag(v.Type().Field(i).Tag.Get("aws"))
	if name == "" || v.Field(i).IsZero() && !hasOption(opts, "always") {
		return nil, false
	}

	value := plainValue(v.Field(i))
	if list, ok := value.([]any); ok && hasOption(opts, "set") {
		value = sortedValues(list)
	}

	return value, true
}

// TagValue returns the value of r's tag key; empty if it has none.
func TagValue(r Resource, key string) string {
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		if _, opts := splitTag(v.Type().Field(i).Tag.Get("aws")); !hasOption(opts, "tags") {
			continue
		}

		value, _ := fieldValue(v, i)
		if tags, ok := value.(map[string]any); ok {
			s, _ := tags[key].(string)
			return s
		}
	}

	return ""
}

// Properties lists the properties that resources of r's kind can have, without values.
func Properties(r Resource) []Field {
	var fs []Field
	t := reflect.TypeOf(r)
	for sf := range t.Fields() {
		if f, tagged := fieldOf(sf); tagged {
			fs = append(fs, f)
		}
	}

	return fs
}

// NestedPaths lists the paths of all nested properties of r's kind, such as LaunchTemplateData/ImageId, lists as /*.
func NestedPaths(r Resource) []string {
	var out []string
	var walk func(prefix string, t reflect.Type)
	walk = func(prefix string, t reflect.Type) {
		if t.Kind() == reflect.Slice {
			walk(prefix+"/*", t.Elem())
			return
		}

		if t.Kind() != reflect.Struct {
			return
		}

		for sf := range t.Fields() {
			if f, tagged := fieldOf(sf); tagged {
				p := strings.TrimPrefix(prefix+"/"+f.Property, "/")
				out = append(out, p)
				walk(p, sf.Type)
			}
		}
	}

	walk("", reflect.TypeOf(r))

	return out
}

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

// referenceOf is a reference that points nowhere, of the type of a reference or of those in a list of them; nil for others.
func referenceOf(t reflect.Type) KindReference {
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}

	if t.Kind() != reflect.Struct || !t.Implements(reflect.TypeFor[KindReference]()) {
		return nil
	}

	p, _ := reflect.TypeAssert[KindReference](reflect.Zero(t))

	return p
}

// nestedIn lists the properties of a struct, or of the structs in a list. A reference and a text have none.
func nestedIn(t reflect.Type) []Field {
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}

	if t.Kind() != reflect.Struct {
		return nil
	}

	var fs []Field

	for sf := range t.Fields() {
		if f, tagged := fieldOf(sf); tagged {
			fs = append(fs, f)
		}
	}

	return fs
}

// plainValue turns v into the few types that the planner and the renderers know.
func plainValue(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case Reference:
		if x.Addr() != "" {
			return Symbol{Addr: x.Addr()}
		}

		return x.Literal()

	case Text:
		if s, ok := x.Literal(); ok {
			return s
		}

		return x
	}

	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	case reflect.Int:
		return v.Int()
	case reflect.Struct:
		return plainStruct(v)
	default:
		return plainCollection(v)
	}
}

func plainCollection(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Slice:
		list := make([]any, 0, v.Len())
		for i := range v.Len() {
			list = append(list, plainValue(v.Index(i)))
		}

		return list

	case reflect.Map:
		m := map[string]any{}
		for _, k := range v.MapKeys() {
			m[k.String()] = plainValue(v.MapIndex(k))
		}

		return m

	default:
		panic(fmt.Sprintf("graph: a resource may not hold a %s", v.Type()))
	}
}

func plainStruct(v reflect.Value) map[string]any {
	m := map[string]any{}
	for i := range v.NumField() {
		if value, set := fieldValue(v, i); set {
			name, _ := splitTag(v.Type().Field(i).Tag.Get("aws"))
			m[name] = value
		}
	}

	return m
}

// Symbols lists the symbols that r holds, each once, in declaration order.
func Symbols(r Resource) []Symbol {
	var out []Symbol
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		if value, set := fieldValue(v, i); set {
			out = appendSymbols(out, value)
		}
	}

	return out
}

func appendSymbols(out []Symbol, v any) []Symbol {
	add := func(s Symbol) {
		if s.Addr != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}

	switch x := v.(type) {
	case Symbol:
		add(x)
	case Text:
		for _, p := range x.parts {
			add(p.symbol)
		}

	case []any:
		for _, e := range x {
			out = appendSymbols(out, e)
		}

	case map[string]any:
		for _, k := range sortedKeys(x) {
			out = appendSymbols(out, x[k])
		}
	}

	return out
}

// References lists every reference that r holds, also those to what exists already.
func References(r Resource) []Reference {
	var out []Reference
	var walk func(reflect.Value)
	walk = func(v reflect.Value) {
		if p, ok := reflect.TypeAssert[Reference](v); ok {
			if p.Addr() != "" || p.Literal() != "" {
				out = append(out, p)
			}

			return
		}

		switch v.Kind() {
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}

		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					walk(v.Field(i))
				}
			}

		default:
		}
	}

	walk(reflect.ValueOf(r))

	return out
}

// Lookup returns the value of a symbol; false while it is not known.
type Lookup func(Symbol) (string, bool)

type symbolResolver interface {
	resolveSymbols(lookup Lookup) any
}

// Resolve returns r with every symbol that lookup knows replaced by its value.
func Resolve(r Resource, lookup Lookup) Resource {
	v := reflect.New(reflect.TypeOf(r)).Elem()
	v.Set(reflect.ValueOf(r))
	resolveIn(v, lookup)
	out, ok := reflect.TypeAssert[Resource](v)
	if !ok {
		panic("graph: a resource is no resource any more")
	}

	return out
}

func resolveIn(v reflect.Value, lookup Lookup) {
	if x, ok := reflect.TypeAssert[symbolResolver](v); ok {
		v.Set(reflect.ValueOf(x.resolveSymbols(lookup)))
		return
	}

	switch v.Kind() {
	case reflect.Slice:
		if v.IsNil() {
			return
		}

		list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(list, v)
		for i := range list.Len() {
			resolveIn(list.Index(i), lookup)
		}

		v.Set(list)

	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				resolveIn(v.Field(i), lookup)
			}
		}

	default:
	}
}

func (r Ref[T]) resolveSymbols(lookup Lookup) any {
	if r.addr == "" {
		return r
	}

	if id, ok := lookup(Symbol{Addr: r.addr}); ok {
		return Ref[T]{literal: id}
	}

	return r
}

func (t Text) resolveSymbols(lookup Lookup) any {
	out := Text{base64: t.base64}
	for _, p := range t.parts {
		if p.symbol != (Symbol{}) {
			if s, ok := lookup(p.symbol); ok {
				p = textPart{literal: s}
			}
		}

		out.parts = append(out.parts, p)
	}

	return out
}

// EqualValues says whether two values of [Field.Value] are the same.
func EqualValues(a, b any) bool { return reflect.DeepEqual(a, b) }

// IsZero says whether v, a value of [Field.Value], is the zero of its type.
func IsZero(v any) bool {
	switch x := v.(type) {
	case []any:
		return len(x) == 0
	case map[string]any:
		return len(x) == 0
	default:
		return v == nil || reflect.ValueOf(v).IsZero()
	}
}

// ZeroValueOf returns the zero of v's type.
func ZeroValueOf(v any) any {
	switch v.(type) {
	case []any:
		return []any{}
	case map[string]any:
		return map[string]any{}
	case Symbol, Text:
		return ""
	default:
		return reflect.Zero(reflect.TypeOf(v)).Interface()
	}
}

func sortedValues(list []any) []any {
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b any) int { return strings.Compare(sortKey(a), sortKey(b)) })
	return out
}

func sortKey(v any) string {
	if t, ok := v.(Text); ok {
		return t.String()
	}

	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}

	return string(b)
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}

	slices.Sort(keys)

	return keys
}
