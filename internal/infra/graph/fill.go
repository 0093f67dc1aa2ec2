// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// FromProperties returns a resource of zero's kind with the given properties, as [Fields] returns them, all
// literal. Numbers may be json.Number. It restores a resource from the last-applied record. A property that
// the kind does not have, or a value of the wrong type, is an error.
func FromProperties(zero Resource, properties map[string]any) (Resource, error) {
	v := reflect.New(reflect.TypeOf(zero)).Elem()
	if err := fillStruct(v, properties); err != nil {
		return nil, fmt.Errorf("%s: %w", zero.Kind().Name, err)
	}

	out, ok := reflect.TypeAssert[Resource](v)
	if !ok {
		return nil, fmt.Errorf("%s is not a resource", v.Type())
	}

	return out, nil
}

// literalFiller is implemented by types that are restored from a literal: references and texts.
type literalFiller interface {
	fillLiteral(literal string) any
}

func (Ref[T]) fillLiteral(literal string) any { return Ref[T]{literal: literal} }

func (Text) fillLiteral(literal string) any { return LiteralText(literal) }

func fillStruct(v reflect.Value, properties map[string]any) error {
	left := maps.Clone(properties)
	for _, f := range taggedFieldsOf(v.Type()) {
		if x, ok := left[f.Property]; ok {
			if err := fillValue(v.Field(f.index), x); err != nil {
				return fmt.Errorf("%s: %w", f.Property, err)
			}

			delete(left, f.Property)
		}
	}

	for _, unknown := range slices.Sorted(maps.Keys(left)) {
		return fmt.Errorf("has no property %s", unknown)
	}

	return nil
}

func fillValue(v reflect.Value, x any) error {
	wrong := fmt.Errorf("a %T is not a valid %s", x, v.Type())
	if f, ok := reflect.TypeAssert[literalFiller](v); ok {
		s, is := x.(string)
		if !is {
			return wrong
		}

		v.Set(reflect.ValueOf(f.fillLiteral(s)))

		return nil
	}

	switch x := x.(type) {
	case string:
		if v.Kind() != reflect.String {
			return wrong
		}

		v.SetString(x)

	case bool:
		if v.Kind() != reflect.Bool {
			return wrong
		}

		v.SetBool(x)

	case int64:
		return fillInt(v, x, wrong)
	case json.Number:
		n, err := x.Int64()
		if err != nil {
			return wrong
		}

		return fillInt(v, n, wrong)

	default:
		return fillCollection(v, x, wrong)
	}

	return nil
}

func fillInt(v reflect.Value, n int64, wrong error) error {
	if v.Kind() != reflect.Int {
		return wrong
	}

	v.SetInt(n)
	return nil
}

func fillCollection(v reflect.Value, x any, wrong error) error {
	list, isList := x.([]any)
	props, isMap := x.(map[string]any)
	switch {
	case isList && v.Kind() == reflect.Slice:
		out := reflect.MakeSlice(v.Type(), len(list), len(list))
		for i, e := range list {
			if err := fillValue(out.Index(i), e); err != nil {
				return err
			}
		}

		v.Set(out)

	case isMap && v.Kind() == reflect.Struct:
		return fillStruct(v, props)
	case isMap && v.Kind() == reflect.Map:
		out := reflect.MakeMap(v.Type())
		for k, e := range props {
			element := reflect.New(v.Type().Elem()).Elem()
			if err := fillValue(element, e); err != nil {
				return err
			}

			out.SetMapIndex(reflect.ValueOf(k), element)
		}

		v.Set(out)

	default:
		return wrong
	}

	return nil
}
