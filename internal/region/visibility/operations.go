// SPDX-License-Identifier: Apache-2.0

package visibility

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Rules are how the operations of one service treat resources that calls do not see yet.
type Rules struct {
	// Named returns the ids of the resources that a request needs to see, as [Tracker.Track] got them. A request that
	// creates a resource does not need to see another one of the same name to be refused.
	Named func(operation string, in any) []string
	// NotFound returns the service's error about a resource of an id that does not exist.
	NotFound func(operation, id string) error
	// Listed returns the id of an entry of a list in an answer, by the name of the member with the list. Answers do not
	// contain the entries that are hidden.
	Listed map[string]func(entry any) string
}

// Wrap returns operations that refuse requests for resources that are not visible yet, and do not list them.
func (t *Tracker) Wrap(rules Rules, operations []wire.Operation) []wire.Operation {
	out := make([]wire.Operation, 0, len(operations))
	for _, op := range operations {
		handle := op.Handle
		op.Handle = func(ctx context.Context, in any) (any, error) {
			if t.HidesNothing() {
				return handle(ctx, in)
			}

			for _, id := range rules.Named(op.Name, in) {
				if t.Hides(id) {
					return nil, rules.NotFound(op.Name, id)
				}
			}

			answer, err := handle(ctx, in)
			if err == nil && isList(op.Name) {
				t.removeHidden(rules, answer)
			}

			return answer, err
		}
		out = append(out, op)
	}

	return out
}

// isList reports whether an operation lists what exists. The answer of one that creates something contains it.
func isList(operation string) bool {
	return strings.HasPrefix(operation, "Describe") || strings.HasPrefix(operation, "List")
}

// removeHidden removes the entries of an answer's lists that are not visible yet.
func (t *Tracker) removeHidden(rules Rules, answer any) {
	v := reflect.ValueOf(answer)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return
	}

	for name, idOf := range rules.Listed {
		list := v.Elem().FieldByName(name)
		if !list.IsValid() || list.Kind() != reflect.Slice {
			continue
		}

		visible := reflect.MakeSlice(list.Type(), 0, list.Len())
		for i := range list.Len() {
			if !t.Hides(idOf(list.Index(i).Interface())) {
				visible = reflect.Append(visible, list.Index(i))
			}
		}

		list.Set(visible)
	}
}

// IDsByMember returns a function for [Rules.Listed]: the id of an entry is one of its members, after a prefix.
func IDsByMember(prefix, member string) func(entry any) string {
	return func(entry any) string { return prefix + wire.StringMember(entry, member) }
}

// StringsOf returns all texts of a request but those in the members except. A text that is no id does no harm.
func StringsOf(in any, except ...string) []string {
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
	}

	return into
}
