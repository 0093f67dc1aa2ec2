// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"reflect"
	"slices"
)

// FilterList removes the entries of a list in an answer, by the name of its member, that keep does not want. It changes
// nothing if the answer has no such list.
func FilterList(answer any, member string, keep func(entry any) bool) {
	v := reflect.ValueOf(answer)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return
	}

	list := v.Elem().FieldByName(member)
	if !list.IsValid() || list.Kind() != reflect.Slice {
		return
	}

	kept := reflect.MakeSlice(list.Type(), 0, list.Len())
	for i := range list.Len() {
		if keep(list.Index(i).Interface()) {
			kept = reflect.Append(kept, list.Index(i))
		}
	}

	list.Set(kept)
}

// Strings returns all texts of a request but those in the members except.
func Strings(in any, except ...string) []string {
	return collectStrings(reflect.ValueOf(in), except, nil)
}

func collectStrings(v reflect.Value, except, into []string) []string {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return collectStrings(v.Elem(), except, into)
		}

	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && !slices.Contains(except, f.Name) {
				into = collectStrings(v.Field(i), except, into)
			}
		}

	case reflect.Slice:
		for i := range v.Len() {
			into = collectStrings(v.Index(i), except, into)
		}

	case reflect.String:
		return append(into, v.String())

	default: // other kinds have no texts
	}

	return into
}
