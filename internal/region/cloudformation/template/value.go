// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// KnownAfterApply is what change sets show for a value that only their execution can evaluate.
const KnownAfterApply = "{{changeSet:KNOWN_AFTER_APPLY}}"

// UnknownValue is the value of a function that only the execution of a change set can evaluate. It must not
// be saved; see [ShowUnknown].
type UnknownValue struct {
	// Text is the text of Fn::Sub with KnownAfterApply for its unknown variables; empty for other functions.
	Text string
}

// String returns the value as change sets show it.
func (u UnknownValue) String() string { return cmp.Or(u.Text, KnownAfterApply) }

// ShowUnknown returns a copy of v with each UnknownValue replaced by the text that change sets show for it.
func ShowUnknown(v any) any {
	switch v := v.(type) {
	case UnknownValue:
		return v.String()
	case Object:
		out := make(Object, len(v))
		for k, e := range v {
			out[k] = ShowUnknown(e)
		}

		return out

	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = ShowUnknown(e)
		}

		return out
	}

	return v
}

// NoValue is the value of AWS::NoValue: Eval removes the property.
type NoValue struct{}

// IsUnknown reports whether v is an UnknownValue.
func IsUnknown(v any) bool {
	_, ok := v.(UnknownValue)
	return ok
}

// HasUnknown reports whether v contains an UnknownValue.
func HasUnknown(v any) bool {
	switch v := v.(type) {
	case UnknownValue:
		return true
	case Object:
		for _, e := range v {
			if HasUnknown(e) {
				return true
			}
		}

	case []any:
		return slices.ContainsFunc(v, HasUnknown)
	}

	return false
}

// ScalarText returns a scalar as text, as CloudFormation writes it; false for other values.
func ScalarText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return map[bool]string{true: "true", false: "false"}[v], true
	case json.Number:
		return v.String(), true
	case float64, int64, int:
		b, err := json.Marshal(v)
		return string(b), err == nil
	}

	return "", false
}

// CanonicalText returns a value as text. Equal values have equal texts, and a number equals the string with
// its digits.
func CanonicalText(v any) string {
	if t, ok := ScalarText(v); ok {
		return strconv.Quote(t)
	}

	switch v := v.(type) {
	case Object:
		var b strings.Builder
		for _, k := range sdkshape.SortedKeys(v) {
			fmt.Fprintf(&b, "%q:%s,", k, CanonicalText(v[k]))
		}

		return "{" + b.String() + "}"

	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = CanonicalText(e)
		}

		return "[" + strings.Join(parts, ",") + "]"
	}

	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}

	return string(b)
}

// ValueAt follows a path of member names and list indexes into a value; nil if there is no value.
func ValueAt(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(Object)
			v = m[step]
		case int:
			list, _ := v.([]any)
			if step >= len(list) {
				return nil
			}

			v = list[step]
		}
	}

	return v
}

// ListAt returns the list at a path; nil if there is none.
func ListAt(v any, path ...any) []any {
	list, _ := ValueAt(v, path...).([]any)
	return list
}

// StringAt returns the scalar at a path as text; empty if there is none.
func StringAt(v any, path ...any) string {
	t, _ := ScalarText(ValueAt(v, path...))
	return t
}

// IntOr returns a scalar as a number, or otherwise if v is not a number.
func IntOr(v any, otherwise int) int {
	t, _ := ScalarText(v)
	if n, err := strconv.Atoi(t); err == nil {
		return n
	}

	return otherwise
}
