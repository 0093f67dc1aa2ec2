// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/record"
)

// unknown stands for a value that only the execution of a change set will tell.
type unknown struct{}

// noValue is what Ref AWS::NoValue gives: the property is left out.
type noValue struct{}

// scope is what a template's functions are evaluated with.
type scope struct {
	t          *Template
	params     map[string]value
	pseudo     map[string]any
	zones      []string
	conditions map[string]bool
	ref        func(logical string) (any, error)
	attribute  func(logical, name string) (any, error)
	export     func(name string) (any, error)
}

type function func(s scope, arg any) (any, error)

// functions are the intrinsic functions but Ref and Condition.
func functions() map[string]function {
	return map[string]function{
		"Fn::GetAtt": scope.getAtt, "Fn::Sub": scope.sub, "Fn::Join": scope.join, "Fn::Select": scope.selectOne,
		"Fn::Split": scope.split, "Fn::If": scope.ifElse, "Fn::Equals": scope.equals, "Fn::And": scope.and, "Fn::Or": scope.or,
		"Fn::Not": scope.not, "Fn::FindInMap": scope.findInMap, "Fn::Base64": scope.base64, "Fn::GetAZs": scope.getAZs,
		"Fn::ImportValue": scope.importValue, "Fn::Cidr": scope.cidr,
	}
}

func functionNames() []string { return record.Keys(functions()) }

// call tells whether an object is a function: its name and its argument.
func calls(m tree) (name string, arg any, ok bool) {
	if len(m) != 1 {
		return "", nil, false
	}
	for k, v := range m {
		if k == "Ref" || k == "Condition" || strings.HasPrefix(k, "Fn::") {
			return k, v, true
		}
	}
	return "", nil, false
}

func templateError(format string, args ...any) error {
	return invalid("Template error: "+format, args...)
}

// eval replaces every function in v by its value.
func (s scope) eval(v any) (any, error) {
	switch v := v.(type) {
	case tree:
		if name, arg, ok := calls(v); ok && (name != "Condition" || isText(arg)) {
			return s.apply(name, arg)
		}
		return s.object(v)
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			x, err := s.eval(e)
			if err != nil {
				return nil, err
			}
			if _, gone := x.(noValue); !gone {
				out = append(out, x)
			}
		}
		return out, nil
	}
	return v, nil
}

func isText(v any) bool {
	_, ok := v.(string)
	return ok
}

func (s scope) object(m tree) (any, error) {
	out := make(tree, len(m))
	for _, k := range record.Keys(m) {
		x, err := s.eval(m[k])
		if err != nil {
			return nil, err
		}
		if _, gone := x.(noValue); !gone {
			out[k] = x
		}
	}
	return out, nil
}

func (s scope) apply(name string, arg any) (any, error) {
	switch name {
	case "Ref":
		id, ok := arg.(string)
		if !ok {
			return nil, malformed("every Ref object must have a single String value.")
		}
		return s.refer(id)
	case "Condition":
		id, _ := arg.(string)
		return s.condition(id)
	}
	f := functions()[name]
	if f == nil {
		return nil, templateError("the function %s is not known", name)
	}
	return f(s, arg)
}

// refer gives what a name stands for: a pseudo parameter, a parameter or a resource.
func (s scope) refer(name string) (any, error) {
	if v, ok := s.pseudo[name]; ok {
		return v, nil
	}
	if p, ok := s.t.Parameters[name]; ok {
		return p.refer(s.params[name]), nil
	}
	if s.ref == nil {
		return nil, malformed("Unresolved dependencies [%s]. Cannot reference resources in the Conditions block of the template", name)
	}
	return s.ref(name)
}

// condition evaluates a named condition.
func (s scope) condition(name string) (bool, error) {
	if v, ok := s.conditions[name]; ok {
		return v, nil
	}
	c, ok := s.t.Conditions[name]
	if !ok {
		return false, malformed("Unresolved condition dependency %s in the template", name)
	}
	if s.conditions == nil {
		s.conditions = map[string]bool{}
	}
	v, err := s.truth(c)
	if err == nil {
		s.conditions[name] = v
	}
	return v, err
}

// truth evaluates what must be a condition.
func (s scope) truth(v any) (bool, error) {
	x, err := s.eval(v)
	if err != nil {
		return false, err
	}
	switch t, _ := text(x); t {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, templateError("every condition must be one of Fn::Equals, Fn::And, Fn::Or, Fn::Not and Condition")
}

func (s scope) getAtt(arg any) (any, error) {
	logical, name, err := s.attOf(arg)
	if err != nil {
		return nil, err
	}
	if s.attribute == nil {
		return nil, templateError("Fn::GetAtt cannot be used here")
	}
	return s.attribute(logical, name)
}

// attOf reads the argument of Fn::GetAtt.
func (s scope) attOf(arg any) (logical, name string, err error) {
	if one, ok := arg.(string); ok {
		logical, name, _ = strings.Cut(one, ".")
		return logical, name, nil
	}
	list, _ := arg.([]any)
	if len(list) == 2 {
		logical, _ = list[0].(string)
		if m, ok := list[1].(tree); ok { // the attribute's name may be a Ref to a parameter
			v, err := s.eval(m)
			if err != nil {
				return "", "", err
			}
			name, _ = text(v)
		} else {
			name, _ = text(list[1])
		}
	}
	if logical == "" || name == "" {
		return "", "", templateError("every Fn::GetAtt object requires two non-empty parameters, the resource name and the resource attribute")
	}
	return logical, name, nil
}

func isUnknown(v any) bool {
	_, ok := v.(unknown)
	return ok
}

// hasUnknown tells whether a value depends on what is not known.
func hasUnknown(v any) bool {
	switch v := v.(type) {
	case unknown:
		return true
	case tree:
		for _, e := range v {
			if hasUnknown(e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasUnknown)
	}
	return false
}

func (s scope) selectOne(arg any) (any, error) {
	v, err := s.eval(arg)
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	if len(list) != 2 {
		return nil, templateError("Fn::Select requires a list argument with two elements: an integer index and a list")
	}
	if isUnknown(list[1]) {
		return unknown{}, nil
	}
	n, _ := text(list[0])
	i, bad := strconv.Atoi(n)
	from, ok := list[1].([]any)
	if bad != nil || !ok {
		return nil, templateError("Fn::Select requires a list argument with two elements: an integer index and a list")
	}
	if i < 0 || i >= len(from) {
		return nil, templateError("Fn::Select cannot select nonexistent value at index %d", i)
	}
	return from[i], nil
}

func (s scope) split(arg any) (any, error) {
	v, err := s.eval(arg)
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	if len(list) == 2 && isUnknown(list[1]) {
		return unknown{}, nil
	}
	if len(list) != 2 || !isText(list[0]) || !isText(list[1]) || list[0] == "" {
		return nil, templateError("every Fn::Split object requires two parameters, (1) a string delimiter and (2) a string to be split or a function that returns a string to be split.")
	}
	out := []any{}
	for part := range strings.SplitSeq(list[1].(string), list[0].(string)) { //nolint:errcheck // isText said so
		out = append(out, part)
	}
	return out, nil
}

func (s scope) ifElse(arg any) (any, error) {
	list, _ := arg.([]any)
	if len(list) != 3 || !isText(list[0]) {
		return nil, templateError("Fn::If requires a list argument with three elements")
	}
	yes, err := s.condition(list[0].(string)) //nolint:errcheck // isText said so
	if err != nil {
		return nil, err
	}
	if yes {
		return s.eval(list[1])
	}
	return s.eval(list[2])
}

func (s scope) equals(arg any) (any, error) {
	v, err := s.eval(arg)
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	if len(list) != 2 {
		return nil, templateError("Fn::Equals requires a list argument with two elements.")
	}
	return canonical(list[0]) == canonical(list[1]), nil
}

// canonical is a value as text: equal values have equal texts, and a number equals the string that writes it.
func canonical(v any) string {
	if t, ok := text(v); ok {
		return strconv.Quote(t)
	}
	switch v := v.(type) {
	case tree:
		var b strings.Builder
		for _, k := range record.Keys(v) {
			fmt.Fprintf(&b, "%q:%s,", k, canonical(v[k]))
		}
		return "{" + b.String() + "}"
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = canonical(e)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
