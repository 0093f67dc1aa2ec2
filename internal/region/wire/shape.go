// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// shapeKind is the kind of a value in a shape.
type shapeKind int

const (
	scalarShape shapeKind = iota
	structureShape
	listShape
	mapShape
)

// shapeKindOf returns the kind of values of type t, which may be a pointer.
func shapeKindOf(t reflect.Type) shapeKind {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	switch {
	case t == reflect.TypeFor[time.Time](), t == reflect.TypeFor[[]byte]():
		return scalarShape
	case t.Kind() == reflect.Struct:
		return structureShape
	case t.Kind() == reflect.Slice:
		return listShape
	case t.Kind() == reflect.Map:
		return mapShape
	}

	return scalarShape
}

// eachMember calls do for each exported member of the struct v, and for those of the shape that it embeds: a service adds
// members that aws-sdk-go v1 does not have to one of its shapes, or replaces those of the same name. It stops at the first
// error and returns it.
func eachMember(v reflect.Value, do func(f reflect.StructField, member reflect.Value) error) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || f.Tag.Get("ignore") != "" {
			continue
		}

		if f.Anonymous {
			err := eachMember(v.Field(i), func(f reflect.StructField, member reflect.Value) error {
				if own, _ := v.Type().FieldByName(f.Name); len(own.Index) == 1 {
					return nil // replaced
				}

				return do(f, member)
			})
			if err != nil {
				return err
			}

			continue
		}

		if err := do(f, v.Field(i)); err != nil {
			return err
		}
	}

	return nil
}

// shapeTag returns the tag of the struct's blank member, in which aws-sdk-go describes the whole shape.
func shapeTag(t reflect.Type) reflect.StructTag {
	f, ok := t.FieldByName("_")
	if !ok {
		return ""
	}

	return f.Tag
}

// memberName returns the name of a member in XML and JSON bodies.
func memberName(f reflect.StructField) string {
	if f.Tag.Get("flattened") != "" && f.Tag.Get("locationNameList") != "" {
		return f.Tag.Get("locationNameList")
	}

	if n := f.Tag.Get("locationName"); n != "" {
		return n
	}

	return f.Name
}

// mapEntryNames returns the element names of the keys and values of a map.
func mapEntryNames(tag reflect.StructTag) (key, value string) {
	key = "key"
	value = "value"
	if n := tag.Get("locationNameKey"); n != "" {
		key = n
	}

	if n := tag.Get("locationNameValue"); n != "" {
		value = n
	}

	return key, value
}

// listItemName returns the element name of the items of a list.
func listItemName(tag reflect.StructTag) string {
	if n := tag.Get("locationNameList"); n != "" {
		return n
	}

	return "member"
}

// allocStruct returns the struct that v is or points to. It allocates the struct if v is a nil pointer.
func allocStruct(v reflect.Value) reflect.Value {
	if v.Kind() != reflect.Pointer {
		return v
	}

	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
	}

	return v.Elem()
}

// setScalar parses text and sets v, which is a pointer to a scalar or a byte slice. format is the format of a
// time if the tag has none.
func setScalar(v reflect.Value, text string, tag reflect.StructTag, format string) error {
	if v.Type() == reflect.TypeFor[[]byte]() {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return errors.New("not base64")
		}

		v.SetBytes(b)

		return nil
	}

	var parsed any
	var err error

	switch v.Interface().(type) {
	case *string:
		parsed = &text
	case *bool:
		parsed, err = pointerOrError(strconv.ParseBool(text))
	case *int64:
		parsed, err = pointerOrError(strconv.ParseInt(text, 10, 64))
	case *float64:
		parsed, err = pointerOrError(strconv.ParseFloat(text, 64))
	case *time.Time:
		if f := tag.Get("timestampFormat"); f != "" {
			format = f
		}

		parsed, err = pointerOrError(parseTime(format, text))

	default:
		return fmt.Errorf("shape has a member of type %s, which no protocol supports", v.Type())
	}

	if err != nil {
		return fmt.Errorf("not a %s", strings.TrimPrefix(v.Type().String(), "*"))
	}

	v.Set(reflect.ValueOf(parsed))

	return nil
}

func pointerOrError[T any](v T, err error) (*T, error) { return &v, err }

// scalarText returns a scalar, which must not be nil, as text.
func scalarText(v reflect.Value, tag reflect.StructTag, format string) string {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}

	switch x := v.Interface().(type) {
	case []byte:
		return base64.StdEncoding.EncodeToString(x)
	case time.Time:
		if f := tag.Get("timestampFormat"); f != "" {
			format = f
		}

		return formatTime(format, x)

	case float64:
		switch {
		case math.IsNaN(x):
			return "NaN"
		case math.IsInf(x, 1):
			return "Infinity"
		case math.IsInf(x, -1):
			return "-Infinity"
		}

		return strconv.FormatFloat(x, 'f', -1, 64)

	case string:
		return x
	case bool:
		return strconv.FormatBool(x)
	case int64:
		return strconv.FormatInt(x, 10)
	}

	return fmt.Sprint(v.Interface())
}

// The formats of times, by the names of aws-sdk-go.
const (
	iso8601       = "iso8601"
	rfc822        = "rfc822"
	unixTimestamp = "unixTimestamp"
)

func formatTime(format string, t time.Time) string {
	t = t.UTC()
	switch format {
	case rfc822:
		return t.Format("Mon, 02 Jan 2006 15:04:05 GMT")
	case unixTimestamp:
		return strconv.FormatFloat(float64(t.UnixMilli())/1e3, 'f', -1, 64)
	}

	return t.Format("2006-01-02T15:04:05.000Z")
}

func parseTime(format, text string) (time.Time, error) {
	switch format {
	case rfc822:
		for _, layout := range []string{time.RFC1123, time.RFC850, time.ANSIC} {
			if t, err := time.Parse(layout, text); err == nil {
				return t.UTC(), nil
			}
		}

		return time.Time{}, errors.New("not an HTTP date")

	case unixTimestamp:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.Abs(f) > 1e12 || math.IsNaN(f) {
			return time.Time{}, errors.New("not a UNIX time")
		}

		return time.UnixMilli(int64(f * 1e3)).UTC(), nil
	}

	for _, layout := range []string{
		time.RFC3339Nano,
		"2006-01-02T15:04:05.999999999",
		"2006-01-02T15:04Z07:00",
		time.DateOnly,
	} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}

	return time.Time{}, errors.New("not an ISO 8601 time")
}
