// SPDX-License-Identifier: Apache-2.0

package eventbridge

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// pattern is a parsed event pattern: objects down to lists of values of which one must match.
type pattern map[string]any

// newPatternError returns EventBridge's error for a pattern that is not valid.
func newPatternError(reason string) error {
	return newErrorf(codeInvalidEventPattern, "Event pattern is not valid. Reason: %s", reason)
}

// parsePattern parses a pattern. It refuses the filters that the region does not implement by their names: all but exact
// values and prefix.
func parsePattern(text string) (pattern, error) {
	var p pattern
	if err := json.Unmarshal([]byte(text), &p); err != nil || p == nil {
		return nil, newPatternError("Filter is not an object")
	}

	if err := checkPattern(p); err != nil {
		return nil, err
	}

	return p, nil
}

func checkPattern(p map[string]any) error {
	if len(p) == 0 {
		return newPatternError("Empty objects are not allowed")
	}

	for _, key := range sdkshape.SortedKeys(p) {
		if strings.HasPrefix(key, "$") {
			return wire.NotImplemented("the filter " + key + " of an event pattern")
		}

		switch v := p[key].(type) {
		case map[string]any:
			if err := checkPattern(v); err != nil {
				return err
			}

		case []any:
			if err := checkValues(key, v); err != nil {
				return err
			}

		default:
			return newPatternError(`"` + key + `" must be an object or an array`)
		}
	}

	return nil
}

func checkValues(key string, values []any) error {
	if len(values) == 0 {
		return newPatternError("Empty arrays are not allowed")
	}

	for _, v := range values {
		switch filter := v.(type) {
		case []any:
			return newPatternError(`"` + key + `" has an array in an array`)
		case map[string]any:
			for name, text := range filter {
				_, isText := text.(string)
				if name != "prefix" || !isText || len(filter) != 1 {
					return wire.NotImplemented("the filter " + name + " of an event pattern")
				}
			}
		}
	}

	return nil
}

// matches reports whether an event, which was decoded from JSON, has all fields of the pattern.
func (p pattern) matches(event map[string]any) bool {
	for key, want := range p {
		have, ok := event[key]
		if !ok {
			return false
		}

		if nested, ok := want.(map[string]any); ok {
			object, ok := have.(map[string]any)
			if !ok || !pattern(nested).matches(object) {
				return false
			}

			continue
		}

		values, _ := want.([]any)
		if !matchesOne(values, have) {
			return false
		}
	}

	return true
}

// matchesOne reports whether a value of an event, or one value of a list, matches one value of a pattern.
func matchesOne(values []any, have any) bool {
	if list, ok := have.([]any); ok {
		return slices.ContainsFunc(list, func(v any) bool { return matchesOne(values, v) })
	}

	return slices.ContainsFunc(values, func(want any) bool {
		filter, ok := want.(map[string]any)
		if !ok {
			_, isObject := have.(map[string]any)
			return !isObject && want == have
		}

		prefix, _ := filter["prefix"].(string)
		text, isText := have.(string)

		return isText && strings.HasPrefix(text, prefix)
	})
}
