// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"time"
)

// DecodeJSON decodes the body of a JSON 1.1 request to the shape in and validates it. An empty body is an
// empty shape.
func DecodeJSON(body []byte, in any) error {
	if err := decodeJSONBody(body, in); err != nil {
		return err
	}

	return validateShape(JSONProtocol, reflect.ValueOf(in), "")
}

// decodeJSONBody decodes a body to the members of the shape in that are in the body.
func decodeJSONBody(body []byte, in any) error {
	if len(bytes.TrimSpace(body)) > 0 {
		var data any
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		if err := d.Decode(&data); err != nil {
			return newErrorf(codeSerializationException, "the body is not valid JSON")
		}

		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return newErrorf(codeSerializationException, "the body contains more than one JSON value")
		}

		return decodeJSONStructure(reflect.ValueOf(in).Elem(), data, "")
	}

	return nil
}

func decodeJSONStructure(v reflect.Value, data any, path string) error {
	object, ok := data.(map[string]any)
	if !ok {
		return newJSONTypeError(path, "an object")
	}

	known := map[string]bool{}
	err := eachMember(v, func(f reflect.StructField, member reflect.Value) error {
		if f.Tag.Get("location") != "" {
			return nil // not in the body
		}

		name := memberName(f)
		known[name] = true
		value, ok := object[name]
		if !ok || value == nil {
			return nil
		}

		return decodeJSONValue(member, value, joinPath(path, name), f.Tag)
	})
	if err != nil {
		return err
	}

	for _, name := range sortedKeys(object) {
		if !known[name] {
			return newErrorf(
				codeValidationException,
				"The parameter %s is not recognized",
				joinPath(path, name),
			)
		}
	}

	return nil
}

func decodeJSONValue(v reflect.Value, data any, path string, tag reflect.StructTag) error {
	switch shapeKindOf(v.Type()) {
	case structureShape:
		return decodeJSONStructure(allocStruct(v), data, path)
	case listShape:
		items, ok := data.([]any)
		if !ok {
			return newJSONTypeError(path, "a list")
		}

		out := reflect.MakeSlice(v.Type(), len(items), len(items))

		for i, item := range items {
			if err := decodeJSONValue(out.Index(i), item, fmt.Sprintf("%s[%d]", path, i), ""); err != nil {
				return err
			}
		}

		v.Set(out)

		return nil

	case mapShape:
		entries, ok := data.(map[string]any)
		if !ok {
			return newJSONTypeError(path, "an object")
		}

		out := reflect.MakeMap(v.Type())

		for k, value := range entries {
			item := reflect.New(v.Type().Elem()).Elem()
			if err := decodeJSONValue(item, value, joinPath(path, k), ""); err != nil {
				return err
			}

			out.SetMapIndex(reflect.ValueOf(k), item)
		}

		v.Set(out)

		return nil

	case scalarShape:
	}

	return decodeJSONScalar(v, data, path, tag)
}

func decodeJSONScalar(v reflect.Value, data any, path string, tag reflect.StructTag) error {
	var text string
	var matches bool
	switch d := data.(type) {
	case string:
		text = d
		switch v.Interface().(type) {
		case *string, []byte, *time.Time:
			matches = true
		}

	case bool:
		text = strconv.FormatBool(d)
		_, matches = reflect.TypeAssert[*bool](v)
	case json.Number:
		text = d.String()
		switch v.Interface().(type) {
		case *int64, *float64, *time.Time:
			matches = true
		}
	}

	format := unixTimestamp
	if _, ok := data.(string); ok {
		format = iso8601
	}

	if !matches || setScalar(v, text, tag, format) != nil {
		return newJSONTypeError(path, "a "+v.Type().String())
	}

	return nil
}

func newJSONTypeError(path, want string) error {
	if path == "" {
		path = "the body"
	}

	return newErrorf(codeSerializationException, "%s is not %s", path, want)
}

// EncodeJSON encodes the shape out as JSON 1.1. It omits members that are not set, and sorts keys.
func EncodeJSON(out any) ([]byte, error) {
	data, err := encodeJSONValue(reflect.ValueOf(out), "")
	if err != nil {
		return nil, err
	}

	b, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", out, err)
	}

	return b, nil
}

// encodeJSONList returns a list with the values of its elements.
func encodeJSONList(v reflect.Value) ([]any, error) {
	items := make([]any, v.Len())
	for i := range items {
		data, err := encodeJSONValue(v.Index(i), "")
		if err != nil {
			return nil, err
		}

		items[i] = data
	}

	return items, nil
}

// encodeJSONMap returns a map with the values of its elements.
func encodeJSONMap(v reflect.Value) (map[string]any, error) {
	object := map[string]any{}
	for _, k := range v.MapKeys() {
		data, err := encodeJSONValue(v.MapIndex(k), "")
		if err != nil {
			return nil, err
		}

		object[k.String()] = data
	}

	return object, nil
}

func encodeJSONValue(v reflect.Value, tag reflect.StructTag) (any, error) {
	switch shapeKindOf(v.Type()) {
	case structureShape:
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return map[string]any{}, nil
			}

			v = v.Elem()
		}

		object := map[string]any{}
		err := eachMember(v, func(f reflect.StructField, member reflect.Value) error {
			if isUnset(member) || f.Tag.Get("location") != "" {
				return nil
			}

			data, err := encodeJSONValue(member, f.Tag)
			object[memberName(f)] = data

			return err
		})

		return object, err

	case listShape:
		return encodeJSONList(v)

	case mapShape:
		return encodeJSONMap(v)

	case scalarShape:
	}

	return encodeJSONScalar(v, tag)
}

func encodeJSONScalar(v reflect.Value, tag reflect.StructTag) (any, error) {
	if isUnset(v) {
		return nil, nil // null
	}

	switch x := v.Interface().(type) {
	case *string:
		return *x, nil
	case *bool:
		return *x, nil
	case *int64:
		return *x, nil
	case []byte:
		return scalarText(v, tag, ""), nil
	case *time.Time:
		if f := tag.Get("timestampFormat"); f != "" && f != unixTimestamp {
			return formatTime(f, *x), nil
		}

		return json.Number(formatTime(unixTimestamp, *x)), nil

	case *float64:
		return *x, nil
	}

	return nil, fmt.Errorf("shape has a member of type %s, which cannot be encoded as JSON", v.Type())
}
