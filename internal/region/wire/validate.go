// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"reflect"
	"strconv"
	"unicode/utf8"
)

// validate checks what a shape's tags say of its members: what is required, and what is the least length or number.
// Members that travel in the URL or in headers are checked too, since they have been decoded by then.
func validate(p Protocol, v reflect.Value, path string) error {
	switch kindOf(v.Type()) {
	case structure:
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return nil
			}

			v = v.Elem()
		}

		return fields(
			v,
			func(f reflect.StructField, member reflect.Value) error { return validateMember(p, f, member, path) },
		)

	case list:
		for i := range v.Len() {
			if err := validate(p, v.Index(i), join(path, strconv.Itoa(i+1))); err != nil {
				return err
			}
		}

	case mapping:
		for _, k := range v.MapKeys() {
			if err := validate(p, v.MapIndex(k), join(path, k.String())); err != nil {
				return err
			}
		}

	case scalar:
	}

	return nil
}

func validateMember(p Protocol, f reflect.StructField, member reflect.Value, path string) error {
	at := join(path, f.Name)
	if f.Tag.Get("required") == "true" && unset(member) && f.Tag.Get("streaming") == "" {
		return missing(p, at)
	}

	if err := least(p, member, f.Tag, at); err != nil {
		return err
	}

	return validate(p, member, at)
}

func unset(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return v.IsNil()
	default:
		return false
	}
}

func least(p Protocol, v reflect.Value, tag reflect.StructTag, path string) error {
	minimum, err := strconv.ParseFloat(tag.Get("min"), 64)
	if errors.Is(err, strconv.ErrSyntax) || unset(v) {
		return nil
	}

	var size float64

	switch x := v.Interface().(type) {
	case *string:
		size = float64(utf8.RuneCountInString(*x))
	case *int64:
		size = float64(*x)
	case *float64:
		size = *x
	default:
		if v.Kind() != reflect.Slice && v.Kind() != reflect.Map {
			return nil
		}

		size = float64(v.Len())
	}

	if size >= minimum {
		return nil
	}

	if p == EC2Query {
		return Errorf(
			"InvalidParameterValue",
			"the parameter %s is below its least length or value, %s",
			path,
			tag.Get("min"),
		)
	}

	return Errorf(
		validationCode(p),
		"1 validation error detected: Value at '%s' failed to satisfy constraint: "+
			"Member must have length or value greater than or equal to %s",
		lowerFirst(path),
		tag.Get("min"),
	)
}

func missing(p Protocol, path string) error {
	if p == EC2Query {
		return Errorf("MissingParameter", "The request must contain the parameter %s", path)
	}

	return Errorf(
		validationCode(p),
		"1 validation error detected: Value null at '%s' failed to satisfy constraint: "+
			"Member must not be null",
		lowerFirst(path),
	)
}

func validationCode(p Protocol) string {
	switch p {
	case JSON:
		return "ValidationException"
	case RESTXML:
		return "InvalidArgument"
	default:
		return "ValidationError"
	}
}

func lowerFirst(s string) string {
	if s == "" || s[0] < 'A' || s[0] > 'Z' {
		return s
	}

	return string(s[0]+'a'-'A') + s[1:]
}
