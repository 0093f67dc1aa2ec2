// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"reflect"
	"strconv"
	"unicode/utf8"
)

// validateShape checks a decoded shape against the tags of its members: required members, and the minimum
// length or value. This includes the members that are in the URL or in headers.
func validateShape(p Protocol, v reflect.Value, path string) error {
	switch shapeKindOf(v.Type()) {
	case structureShape:
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return nil
			}

			v = v.Elem()
		}

		return eachMember(
			v,
			func(f reflect.StructField, member reflect.Value) error { return validateMember(p, f, member, path) },
		)

	case listShape:
		for i := range v.Len() {
			if err := validateShape(p, v.Index(i), joinPath(path, strconv.Itoa(i+1))); err != nil {
				return err
			}
		}

	case mapShape:
		for _, k := range v.MapKeys() {
			if err := validateShape(p, v.MapIndex(k), joinPath(path, k.String())); err != nil {
				return err
			}
		}

	case scalarShape:
	}

	return nil
}

func validateMember(p Protocol, f reflect.StructField, member reflect.Value, path string) error {
	at := joinPath(path, f.Name)
	if f.Tag.Get("required") == "true" && isUnset(member) && f.Tag.Get("streaming") == "" {
		return newMissingMemberError(p, at)
	}

	if err := validateMinimum(p, member, f.Tag, at); err != nil {
		return err
	}

	return validateShape(p, member, at)
}

func isUnset(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return v.IsNil()
	default:
		return false
	}
}

func validateMinimum(p Protocol, v reflect.Value, tag reflect.StructTag, path string) error {
	minimum, err := strconv.ParseFloat(tag.Get("min"), 64)
	if errors.Is(err, strconv.ErrSyntax) || isUnset(v) {
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

	if p == EC2QueryProtocol {
		return newErrorf(
			codeInvalidParameterValue,
			"the parameter %s is below its least length or value, %s",
			path,
			tag.Get("min"),
		)
	}

	return newErrorf(
		validationCode(p),
		"1 validation error detected: Value%s at '%s' failed to satisfy constraint: "+
			"Member must have %s greater than or equal to %s",
		quoteValue(v, tag),
		lowerFirst(path),
		measureOf(v),
		tag.Get("min"),
	)
}

// quoteValue returns a scalar in quotes after a space, as AWS's messages have it; empty for secrets and for lists.
func quoteValue(v reflect.Value, tag reflect.StructTag) string {
	if !isScalarType(v.Type()) || tag.Get("sensitive") != "" || v.Type() == reflect.TypeFor[[]byte]() {
		return ""
	}

	return " '" + scalarText(v, tag, iso8601) + "'"
}

// measureOf returns what the minimum of a member limits, in AWS's words.
func measureOf(v reflect.Value) string {
	switch v.Interface().(type) {
	case *int64, *float64:
		return "value"
	}

	return "length"
}

func newMissingMemberError(p Protocol, path string) error {
	if p == EC2QueryProtocol {
		return newErrorf(codeMissingParameter, "The request must contain the parameter %s", path)
	}

	if p == S3Protocol {
		return newErrorf(
			codeMalformedXML,
			"The XML you provided was not well-formed or did not validate against our published schema: %s is missing",
			path,
		)
	}

	return newErrorf(
		validationCode(p),
		"1 validation error detected: Value null at '%s' failed to satisfy constraint: "+
			"Member must not be null",
		lowerFirst(path),
	)
}

func validationCode(p Protocol) errorCode {
	switch p {
	case JSONProtocol, RESTJSONProtocol:
		return codeValidationException
	case S3Protocol:
		return codeInvalidArgument
	default:
		return codeValidationError
	}
}

func lowerFirst(s string) string {
	if s == "" || s[0] < 'A' || s[0] > 'Z' {
		return s
	}

	return string(s[0]+'a'-'A') + s[1:]
}
