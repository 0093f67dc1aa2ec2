// SPDX-License-Identifier: Apache-2.0

package template

import (
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// Scope is what the functions of a template are evaluated with. A Scope is used by one goroutine: it caches
// the values of conditions.
type Scope struct {
	// Template is the template with the mappings, conditions and parameters.
	Template *Template
	// Parameters are the values of the parameters, by name.
	Parameters map[string]ParameterValue
	// Pseudo are the values of the pseudo parameters, such as AWS::Region.
	Pseudo map[string]any
	// Zones are the availability zones that Fn::GetAZs returns.
	Zones []string
	// Conditions caches the values of conditions; set it to an empty map.
	Conditions map[string]bool
	// ResolveResource returns the physical ID of a resource; nil if Ref to resources is not allowed.
	ResolveResource func(logical string) (any, error)
	// ResolveAttribute returns an attribute of a resource; nil if Fn::GetAtt is not allowed.
	ResolveAttribute func(logical, name string) (any, error)
	// ResolveExport returns the value of an export; nil if Fn::ImportValue is not allowed.
	ResolveExport func(name string) (any, error)
}

type intrinsicFunc func(s Scope, arg any) (any, error)

// intrinsicFunctions returns the intrinsic functions except Ref and Condition.
func intrinsicFunctions() map[string]intrinsicFunc {
	return map[string]intrinsicFunc{
		"Fn::GetAtt": Scope.fnGetAtt, "Fn::Sub": Scope.fnSub, "Fn::Join": Scope.fnJoin, "Fn::Select": Scope.fnSelect,
		"Fn::Split": Scope.fnSplit, "Fn::If": Scope.fnIf, "Fn::Equals": Scope.fnEquals, "Fn::And": Scope.fnAnd, "Fn::Or": Scope.fnOr,
		"Fn::Not": Scope.fnNot, "Fn::FindInMap": Scope.fnFindInMap, "Fn::Base64": Scope.fnBase64, "Fn::GetAZs": Scope.fnGetAZs,
		"Fn::ImportValue": Scope.fnImportValue, "Fn::Cidr": Scope.fnCidr,
	}
}

func functionNames() []string { return sdkshape.SortedKeys(intrinsicFunctions()) }

// asIntrinsic returns the name and the argument of a function; false if the object is not a function.
func asIntrinsic(m Object) (name string, arg any, ok bool) {
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

// Eval replaces every function in v by its value.
func (s Scope) Eval(v any) (any, error) {
	switch v := v.(type) {
	case Object:
		if name, arg, ok := asIntrinsic(v); ok && (name != "Condition" || isString(arg)) {
			return s.applyFunction(name, arg)
		}

		return s.evalObject(v)

	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			x, err := s.Eval(e)
			if err != nil {
				return nil, err
			}

			if _, gone := x.(NoValue); !gone {
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

func (s Scope) evalObject(m Object) (any, error) {
	out := make(Object, len(m))
	for _, k := range sdkshape.SortedKeys(m) {
		x, err := s.Eval(m[k])
		if err != nil {
			return nil, err
		}

		if _, gone := x.(NoValue); !gone {
			out[k] = x
		}
	}

	return out, nil
}

func (s Scope) applyFunction(name string, arg any) (any, error) {
	switch name {
	case "Ref":
		id, ok := arg.(string)
		if !ok {
			return nil, FormatError("every Ref object must have a single String value.")
		}

		return s.resolveRef(id)

	case "Condition":
		id, _ := arg.(string)
		return s.EvalCondition(id)
	}

	f := intrinsicFunctions()[name]
	if f == nil {
		return nil, ErrorInTemplate("the function %s is not known", name)
	}

	return f(s, arg)
}

// resolveRef returns the value of Ref: of a pseudo parameter, a parameter or a resource.
func (s Scope) resolveRef(name string) (any, error) {
	if v, ok := s.Pseudo[name]; ok {
		return v, nil
	}

	if p, ok := s.Template.Parameters[name]; ok {
		return p.refValue(s.Parameters[name]), nil
	}

	if s.ResolveResource == nil {
		return nil, FormatError(
			"Unresolved dependencies [%s]. Cannot reference resources in the Conditions block of the template",
			name,
		)
	}

	return s.ResolveResource(name)
}

// EvalCondition evaluates a condition by its name.
func (s Scope) EvalCondition(name string) (bool, error) {
	if v, ok := s.Conditions[name]; ok {
		return v, nil
	}

	c, ok := s.Template.Conditions[name]
	if !ok {
		return false, FormatError("Unresolved condition dependency %s in the template", name)
	}

	if s.Conditions == nil {
		s.Conditions = map[string]bool{}
	}

	v, err := s.evalBool(c)
	if err == nil {
		s.Conditions[name] = v
	}

	return v, err
}

// evalBool evaluates a value that must be a condition.
func (s Scope) evalBool(v any) (bool, error) {
	x, err := s.Eval(v)
	if err != nil {
		return false, err
	}

	switch t, _ := ScalarText(x); t {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}

	return false, ErrorInTemplate(
		"every condition must be one of Fn::Equals, Fn::And, Fn::Or, Fn::Not and Condition",
	)
}

func (s Scope) fnGetAtt(arg any) (any, error) {
	logical, name, err := s.parseGetAtt(arg)
	if err != nil {
		return nil, err
	}

	if s.ResolveAttribute == nil {
		return nil, ErrorInTemplate("Fn::GetAtt cannot be used here")
	}

	return s.ResolveAttribute(logical, name)
}

// parseGetAtt parses the argument of Fn::GetAtt.
func (s Scope) parseGetAtt(arg any) (logical, name string, err error) {
	if one, ok := arg.(string); ok {
		logical, name, _ = strings.Cut(one, ".")
		return logical, name, nil
	}

	list, _ := arg.([]any)
	if len(list) == 2 {
		logical, _ = list[0].(string)
		if m, ok := list[1].(Object); ok { // the attribute may be a Ref to a parameter
			v, err := s.Eval(m)
			if err != nil {
				return "", "", err
			}

			name, _ = ScalarText(v)
		} else {
			name, _ = ScalarText(list[1])
		}
	}

	if logical == "" || name == "" {
		return "", "", errMalformedGetAtt()
	}

	return logical, name, nil
}

func (s Scope) fnSelect(arg any) (any, error) {
	v, err := s.Eval(arg)
	if err != nil {
		return nil, err
	}

	list, _ := v.([]any)
	if len(list) != 2 {
		return nil, errMalformedSelect()
	}

	if IsUnknown(list[1]) {
		return UnknownValue{}, nil
	}

	n, _ := ScalarText(list[0])
	i, bad := strconv.Atoi(n)
	from, ok := list[1].([]any)
	if bad != nil || !ok {
		return nil, errMalformedSelect()
	}

	if i < 0 || i >= len(from) {
		return nil, errNothingToSelect(i)
	}

	return from[i], nil
}

func (s Scope) fnSplit(arg any) (any, error) {
	v, err := s.Eval(arg)
	if err != nil {
		return nil, err
	}

	list, _ := v.([]any)
	if len(list) == 2 && IsUnknown(list[1]) {
		return UnknownValue{}, nil
	}

	delimiter, text, ok := stringPair(list)
	if !ok || delimiter == "" {
		return nil, errMalformedSplit()
	}

	out := []any{}
	for part := range strings.SplitSeq(text, delimiter) {
		out = append(out, part)
	}

	return out, nil
}

// stringPair returns the two strings of a list; false if the list is not of that form.
func stringPair(list []any) (first, second string, ok bool) {
	if len(list) != 2 {
		return "", "", false
	}

	first, ok = list[0].(string)
	second, isText := list[1].(string)

	return first, second, ok && isText
}

func (s Scope) fnIf(arg any) (any, error) {
	branch, err := s.selectBranch(arg)
	if err != nil {
		return nil, err
	}

	return s.Eval(branch)
}

// selectBranch returns the branch that an Fn::If with an argument selects, as it stands in the template.
func (s Scope) selectBranch(arg any) (any, error) {
	list, _ := arg.([]any)
	if len(list) != 3 {
		return nil, errMalformedIf()
	}

	condition, ok := list[0].(string)
	if !ok {
		return nil, errMalformedIf()
	}

	yes, err := s.EvalCondition(condition)
	if err != nil {
		return nil, err
	}

	if yes {
		return list[1], nil
	}

	return list[2], nil
}

func (s Scope) fnEquals(arg any) (any, error) {
	v, err := s.Eval(arg)
	if err != nil {
		return nil, err
	}

	list, _ := v.([]any)
	if len(list) != 2 {
		return nil, errMalformedEquals()
	}

	return CanonicalText(list[0]) == CanonicalText(list[1]), nil
}
