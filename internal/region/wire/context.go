// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"maps"
	"reflect"
)

type conditionsKey struct{}

// WithConditionKeys returns a context with condition keys for all checks of a request, such as aws:SourceIp.
func WithConditionKeys(ctx context.Context, keys map[string][]string) context.Context {
	return context.WithValue(ctx, conditionsKey{}, keys)
}

// ConditionKeys returns the condition keys of [WithConditionKeys] and of a check in a new map. Those of the
// check win.
func ConditionKeys(ctx context.Context, c AccessCheck) map[string][]string {
	out := map[string][]string{}
	if common, ok := ctx.Value(conditionsKey{}).(map[string][]string); ok {
		maps.Copy(out, common)
	}

	maps.Copy(out, c.Context)

	return out
}

// StringMember returns the string member of a shape by its name; empty if the shape has no such member or it is not
// set. A [Service].Authorize uses it to find the resource of many operations without their types.
func StringMember(in any, name string) string {
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
