// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// unknownValue stands for a value that only the execution of a change set will tell.
type unknownValue struct{}

// noValue is what Ref AWS::NoValue gives: the property is left out.
type noValue struct{}

// evalScope is what a template's functions are evaluated with.
type evalScope struct {
	template         *Template
	parameters       map[string]parameterValue
	pseudo           map[string]any
	zones            []string
	conditions       map[string]bool
	resolveResource  func(logical string) (any, error)
	resolveAttribute func(logical, name string) (any, error)
	resolveExport    func(name string) (any, error)
}

type intrinsicFunc func(s evalScope, arg any) (any, error)

// intrinsicFunctions are the intrinsic functions but Ref and Condition.
func intrinsicFunctions() map[string]intrinsicFunc {
	return map[string]intrinsicFunc{
		"Fn::GetAtt": evalScope.fnGetAtt, "Fn::Sub": evalScope.fnSub, "Fn::Join": evalScope.fnJoin, "Fn::Select": evalScope.fnSelect,
		"Fn::Split": evalScope.fnSplit, "Fn::If": evalScope.fnIf, "Fn::Equals": evalScope.fnEquals, "Fn::And": evalScope.fnAnd, "Fn::Or": evalScope.fnOr,
		"Fn::Not": evalScope.fnNot, "Fn::FindInMap": evalScope.fnFindInMap, "Fn::Base64": evalScope.fnBase64, "Fn::GetAZs": evalScope.fnGetAZs,
		"Fn::ImportValue": evalScope.fnImportValue, "Fn::Cidr": evalScope.fnCidr,
	}
}

func functionNames() []string { return sdkshape.SortedKeys(intrinsicFunctions()) }

// call tells whether an object is a function: its name and its argument.
func asIntrinsic(m object) (name string, arg any, ok bool) {
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
	return validationError("Template error: "+format, args...)
}

// eval replaces every function in v by its value.
func (s evalScope) eval(v any) (any, error) {
	switch v := v.(type) {
	case object:
		if name, arg, ok := asIntrinsic(v); ok && (name != "Condition" || isString(arg)) {
			return s.applyFunction(name, arg)
		}

		return s.evalObject(v)

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

func isString(v any) bool {
	_, ok := v.(string)
	return ok
}

func (s evalScope) evalObject(m object) (any, error) {
	out := make(object, len(m))
	for _, k := range sdkshape.SortedKeys(m) {
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

func (s evalScope) applyFunction(name string, arg any) (any, error) {
	switch name {
	case "Ref":
		id, ok := arg.(string)
		if !ok {
			return nil, formatError("every Ref object must have a single String value.")
		}

		return s.resolveRef(id)

	case "Condition":
		id, _ := arg.(string)
		return s.evalCondition(id)
	}

	f := intrinsicFunctions()[name]
	if f == nil {
		return nil, templateError("the function %s is not known", name)
	}

	return f(s, arg)
}

// resolveRef gives what a name stands for: a pseudo parameter, a parameter or a resource.
func (s evalScope) resolveRef(name string) (any, error) {
	if v, ok := s.pseudo[name]; ok {
		return v, nil
	}

	if p, ok := s.template.Parameters[name]; ok {
		return p.refValue(s.parameters[name]), nil
	}

	if s.resolveResource == nil {
		return nil, formatError(
			"Unresolved dependencies [%s]. Cannot reference resources in the Conditions block of the template",
			name,
		)
	}

	return s.resolveResource(name)
}

// evalCondition evaluates a named condition.
func (s evalScope) evalCondition(name string) (bool, error) {
	if v, ok := s.conditions[name]; ok {
		return v, nil
	}

	c, ok := s.template.Conditions[name]
	if !ok {
		return false, formatError("Unresolved condition dependency %s in the template", name)
	}

	if s.conditions == nil {
		s.conditions = map[string]bool{}
	}

	v, err := s.evalBool(c)
	if err == nil {
		s.conditions[name] = v
	}

	return v, err
}

// evalBool evaluates what must be a condition.
func (s evalScope) evalBool(v any) (bool, error) {
	x, err := s.eval(v)
	if err != nil {
		return false, err
	}

	switch t, _ := scalarText(x); t {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}

	return false, templateError(
		"every condition must be one of Fn::Equals, Fn::And, Fn::Or, Fn::Not and Condition",
	)
}

func (s evalScope) fnGetAtt(arg any) (any, error) {
	logical, name, err := s.parseGetAtt(arg)
	if err != nil {
		return nil, err
	}

	if s.resolveAttribute == nil {
		return nil, templateError("Fn::GetAtt cannot be used here")
	}

	return s.resolveAttribute(logical, name)
}

// parseGetAtt reads the argument of Fn::GetAtt.
func (s evalScope) parseGetAtt(arg any) (logical, name string, err error) {
	if one, ok := arg.(string); ok {
		logical, name, _ = strings.Cut(one, ".")
		return logical, name, nil
	}

	list, _ := arg.([]any)
	if len(list) == 2 {
		logical, _ = list[0].(string)
		if m, ok := list[1].(object); ok { // the attribute's name may be a Ref to a parameter
			v, err := s.eval(m)
			if err != nil {
				return "", "", err
			}

			name, _ = scalarText(v)
		} else {
			name, _ = scalarText(list[1])
		}
	}

	if logical == "" || name == "" {
		return "", "", templateError(
			"every Fn::GetAtt object requires two non-empty parameters, the resource name and the resource attribute",
		)
	}

	return logical, name, nil
}

func isUnknown(v any) bool {
	_, ok := v.(unknownValue)
	return ok
}

// hasUnknown tells whether a value depends on what is not known.
func hasUnknown(v any) bool {
	switch v := v.(type) {
	case unknownValue:
		return true
	case object:
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

func (s evalScope) fnSelect(arg any) (any, error) {
	v, err := s.eval(arg)
	if err != nil {
		return nil, err
	}

	list, _ := v.([]any)
	if len(list) != 2 {
		return nil, templateError(
			"Fn::Select requires a list argument with two elements: an integer index and a list",
		)
	}

	if isUnknown(list[1]) {
		return unknownValue{}, nil
	}

	n, _ := scalarText(list[0])
	i, bad := strconv.Atoi(n)
	from, ok := list[1].([]any)
	if bad != nil || !ok {
		return nil, templateError(
			"Fn::Select requires a list argument with two elements: an integer index and a list",
		)
	}

	if i < 0 || i >= len(from) {
		return nil, templateError("Fn::Select cannot select nonexistent value at index %d", i)
	}

	return from[i], nil
}

func (s evalScope) fnSplit(arg any) (any, error) {
	v, err := s.eval(arg)
	if err != nil {
		return nil, err
	}

	list, _ := v.([]any)
	if len(list) == 2 && isUnknown(list[1]) {
		return unknownValue{}, nil
	}

	if len(list) != 2 || !isString(list[0]) || !isString(list[1]) || list[0] == "" {
		return nil, templateError(
			"every Fn::Split object requires two parameters, (1) a string delimiter and (2) a string to be split or a function that returns a string to be split.",
		)
	}

	out := []any{}
	for part := range strings.SplitSeq(list[1].(string), list[0].(string)) { //nolint:errcheck // isString said so
		out = append(out, part)
	}

	return out, nil
}

func (s evalScope) fnIf(arg any) (any, error) {
	list, _ := arg.([]any)
	if len(list) != 3 || !isString(list[0]) {
		return nil, templateError("Fn::If requires a list argument with three elements")
	}

	yes, err := s.evalCondition(list[0].(string)) //nolint:errcheck // isString said so
	if err != nil {
		return nil, err
	}

	if yes {
		return s.eval(list[1])
	}

	return s.eval(list[2])
}

func (s evalScope) fnEquals(arg any) (any, error) {
	v, err := s.eval(arg)
	if err != nil {
		return nil, err
	}

	list, _ := v.([]any)
	if len(list) != 2 {
		return nil, templateError("Fn::Equals requires a list argument with two elements.")
	}

	return canonicalText(list[0]) == canonicalText(list[1]), nil
}

// canonicalText is a value as text: equal values have equal texts, and a number equals the string that writes it.
func canonicalText(v any) string {
	if t, ok := scalarText(v); ok {
		return strconv.Quote(t)
	}

	switch v := v.(type) {
	case object:
		var b strings.Builder
		for _, k := range sdkshape.SortedKeys(v) {
			fmt.Fprintf(&b, "%q:%s,", k, canonicalText(v[k]))
		}

		return "{" + b.String() + "}"

	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = canonicalText(e)
		}

		return "[" + strings.Join(parts, ",") + "]"
	}

	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}

	return string(b)
}
