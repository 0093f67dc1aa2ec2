// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Field is one property of a resource: its names, its flags from the struct's tags, and its value.
type Field struct {
	// Property is the name in CloudFormation and the AWS API. Example: "CidrBlock".
	Property string
	// Attribute is Terraform's name, such as "cidr_block"; "-" if Terraform does not have it.
	Attribute string
	// Immutable is true if AWS cannot change the property: a change replaces the resource. Tag:
	// `aws:",immutable"`.
	Immutable bool
	// EnforceZero is true if the zero value is enforced too, not taken as unset. Tag: `aws:",always"`.
	EnforceZero bool
	// Unordered is true for a list whose order has no meaning; its values are sorted. Tag: `aws:",set"`.
	Unordered bool
	// WriteOnly is true if AWS never returns the property, so that it is not compared. Tag: `aws:",write"`.
	WriteOnly bool
	// IsTags is true for the tags of a resource, to which others may add theirs. Tag: `aws:",tags"`.
	IsTags bool
	// IsJSON is true for a document of type [JSON].
	IsJSON bool
	// EnforceAbsence is true if an unset property is removed from an existing resource. Tag: `aws:",whole"`.
	EnforceAbsence bool
	// Reference is an unset reference of the field's type, or of the type of the list's items; nil for other
	// types.
	Reference KindReference
	// Render holds what only the renderers of templates need.
	Render RenderHints
	// Nested lists the properties of a struct, or of the structs in a list, without values.
	Nested []Field
	// Value is a string, bool, int64, [Symbol] or [Text] (if it contains symbols), or a []any or
	// map[string]any of these. [Properties] and Nested leave it nil.
	Value any
}

// RenderHints tells the renderers of templates how a property differs in CloudFormation or Terraform.
type RenderHints struct {
	// IsParameter makes the property a parameter of rendered templates. Tag: `aws:",param"`. Example:
	// InstanceType of a launch template becomes the parameter WorkersInstanceType.
	IsParameter bool
	// IsScaleParameter is [RenderHints.IsParameter] for all resources except control-plane slots, which
	// always have one machine. Tag: `aws:",scale"`. Example: MinSize of an Auto Scaling group.
	IsScaleParameter bool
	// ParameterType is CloudFormation's type of that parameter. Tag: `cfn:"type=TYPE"`. Example: ImageId has
	// AWS::EC2::Image::Id. Default: String or Number.
	ParameterType string
	// Propagated is true for tags that the resource also gives to what it creates. Tag: `aws:",propagated"`.
	// Example: the tags of an Auto Scaling group render with PropagateAtLaunch: true.
	Propagated bool
	// CloudFormationString is true for a number that CloudFormation's schema declares as a string. Tag:
	// `cfn:"text"`. Example: MaxSize renders as "3".
	CloudFormationString bool
	// TagResourceType is the ResourceType that CloudFormation requires next to the tags. Tag:
	// `cfn:"of=TYPE"`. Example: TagSpecifications of a launch template have ResourceType launch-template.
	TagResourceType string
	// TerraformInline puts the properties of a struct directly into Terraform's resource. Tag:
	// `tf:",inline"`. Example: LaunchTemplateData{ImageId} renders as image_id of aws_launch_template.
	TerraformInline bool
	// TerraformSingle renders a list of exactly one item as that item. Tag: `tf:",one"`. Example: Roles of an
	// instance profile renders as role = "x".
	TerraformSingle bool
	// TerraformOptions renders each key of a map as an attribute of its own, by [Kind.TerraformOptions]. Tag:
	// `tf:",options"`. Example: deletion_protection.enabled renders as enable_deletion_protection.
	TerraformOptions bool
	// TerraformTrueValue renders a string as a bool: whether the string has this value. Tag:
	// `tf:",is=VALUE"`. Example: Scheme with `tf:"internal,is=internal"` renders as internal = true.
	TerraformTrueValue string
	// TerraformMap renders a struct as a map and not as a block. Tag: `tf:",map"`. Example: Variables of a Lambda function.
	TerraformMap bool
	// TerraformOwnType renders each struct of a list as a separate Terraform resource of this type. Tag:
	// `tf:"-,apart=TYPE"`. Example: Targets renders as aws_cloudwatch_event_target.
	TerraformOwnType string
	// TerraformParentAttribute is the attribute of that separate resource that refers to this one. Tag:
	// `tf:"-,with=ATTRIBUTE"`. Example: rule of a target.
	TerraformParentAttribute string
	// TerraformParentIsList is true if that attribute is a list. Tag: `tf:"-,with=ATTRIBUTE[]"`. Example: group_names of a
	// notification.
	TerraformParentIsList bool
	// CloudFormationOmit leaves the property out of the CloudFormation resource. Tag: `cfn:"-"`. Example:
	// DesiredCapacity, so that a group starts with MinSize.
	CloudFormationOmit bool
	// CloudFormationDefaultsFalse leaves the value false out of the CloudFormation resource: an absent property is false
	// there, also after it was true. Tag: `cfn:"false"`. Example: MapPublicIpOnLaunch.
	CloudFormationDefaultsFalse bool
	// CloudFormationOwnType renders the property as a separate CloudFormation resource of this type. Tag:
	// `cfn:"apart=TYPE"`. Example: WarmPool renders as an AWS::AutoScaling::WarmPool.
	CloudFormationOwnType string
	// CloudFormationParentProperty is the property of that separate resource that refers to this one. Tag:
	// `cfn:"with=PROPERTY"`. Example: AutoScalingGroupName of a warm pool.
	CloudFormationParentProperty string
	// CloudFormationParentIsList is true if that property is a list. Tag: `cfn:"with=PROPERTY[]"`. Example: Topics of a topic
	// policy.
	CloudFormationParentIsList bool
}

// Fields returns the properties of r that are set or whose zero value is enforced, in declaration order.
// Only this file, fieldtags.go and fill.go use reflection on resources.
func Fields(r Resource) []Field {
	v := reflect.ValueOf(r)
	var fs []Field
	for _, tagged := range taggedFieldsOf(v.Type()) {
		value, set := tagged.valueIn(v)
		if !set {
			continue
		}

		f := tagged.Field
		f.Value = value
		fs = append(fs, f)
	}

	return fs
}

// TagValue returns the value of the tag key of r; empty if r does not have it.
func TagValue(r Resource, key string) string {
	v := reflect.ValueOf(r)
	for _, f := range taggedFieldsOf(v.Type()) {
		if !f.IsTags {
			continue
		}

		value, _ := f.valueIn(v)
		if tags, ok := value.(map[string]any); ok {
			s, _ := tags[key].(string)
			return s
		}
	}

	return ""
}

// Properties returns all properties of r's kind, without values.
func Properties(r Resource) []Field { return propertiesOf(reflect.TypeOf(r)) }

// propertiesOf returns the properties of a struct type, in a list of the caller's own.
func propertiesOf(t reflect.Type) []Field {
	var fs []Field
	for _, f := range taggedFieldsOf(t) {
		fs = append(fs, f.Field)
	}

	return fs
}

// NestedPaths returns the paths of all properties of r's kind, nested ones included, such as
// LaunchTemplateData/ImageId. The items of a list are "*", as in BlockDeviceMappings/*/DeviceName.
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

		for _, f := range taggedFieldsOf(t) {
			p := strings.TrimPrefix(prefix+"/"+f.Property, "/")
			out = append(out, p)
			walk(p, t.Field(f.index).Type)
		}
	}

	walk("", reflect.TypeOf(r))

	return out
}

// referenceOf returns an unset reference of type t, or of the item type if t is a list; nil if that is not a
// reference.
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

// nestedIn returns the properties of a struct, or of the structs in a list. A reference and a text have none.
func nestedIn(t reflect.Type) []Field {
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}

	if t.Kind() != reflect.Struct {
		return nil
	}

	return propertiesOf(t)
}

// plainValue converts v to one of the types that [Field.Value] allows.
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
	case JSON:
		if t := x.Text(); len(appendSymbols(nil, t)) > 0 {
			return t
		}

		return string(x)
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
		panic(fmt.Sprintf("graph: a resource cannot have a field of type %s", v.Type()))
	}
}

func plainStruct(v reflect.Value) map[string]any {
	m := map[string]any{}
	for _, f := range taggedFieldsOf(v.Type()) {
		if value, set := f.valueIn(v); set {
			m[f.Property] = value
		}
	}

	return m
}

// Symbols returns the symbols in r, each once, in declaration order.
func Symbols(r Resource) []Symbol {
	var out []Symbol
	v := reflect.ValueOf(r)
	for _, f := range taggedFieldsOf(v.Type()) {
		if value, set := f.valueIn(v); set {
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

// References returns every reference in r that is set, including those to unmanaged resources.
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

// Lookup returns the value of a symbol; false while it is unknown.
type Lookup func(Symbol) (string, bool)

type symbolResolver interface {
	resolveSymbols(lookup Lookup) any
}

// Resolve returns a copy of r in which every symbol that lookup knows is replaced by its value.
func Resolve(r Resource, lookup Lookup) Resource {
	v := reflect.New(reflect.TypeOf(r)).Elem()
	v.Set(reflect.ValueOf(r))
	resolveIn(v, lookup)
	out, ok := reflect.TypeAssert[Resource](v)
	if !ok {
		panic("graph: the copy of a resource does not implement Resource")
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

// EqualValues reports whether two values of [Field.Value] are equal.
func EqualValues(a, b any) bool { return reflect.DeepEqual(a, b) }

// IsZero reports whether v, a value of [Field.Value], is nil, empty or the zero of its type.
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

// ZeroValueOf returns the zero of the type of v, a value of [Field.Value]: "" for a symbol or text.
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
