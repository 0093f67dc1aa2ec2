// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"maps"
	"reflect"
)

type conditionsKey struct{}

// WithConditions returns ctx carrying condition keys that every check of the request has, such as aws:SourceIp.
func WithConditions(ctx context.Context, keys map[string][]string) context.Context {
	return context.WithValue(ctx, conditionsKey{}, keys)
}

// ConditionKeys are the condition keys of [WithConditions] and those of a check, which win, in a new map.
func ConditionKeys(ctx context.Context, c Check) map[string][]string {
	out := map[string][]string{}
	if common, ok := ctx.Value(conditionsKey{}).(map[string][]string); ok {
		maps.Copy(out, common)
	}

	maps.Copy(out, c.Context)

	return out
}

// Member is the text member of that name of the shape in; empty where it has none or where it is unset. It lets a
// [Service].Authorize find the resource of many operations without knowing each shape.
func Member(in any, name string) string {
	v := reflect.ValueOf(in)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return ""
	}

	f := v.Elem().FieldByName(name)
	if !f.IsValid() {
		return ""
	}

	if text, ok := reflect.TypeAssert[*string](f); ok && text != nil {
		return *text
	}

	return ""
}
