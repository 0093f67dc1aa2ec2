// SPDX-License-Identifier: Apache-2.0

package template

import (
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// checkFunctions refuses malformed functions, wherever they are: also in the branches of Fn::If that are not taken, which are
// never evaluated.
func (t *Template) checkFunctions() error {
	if err := t.checkFunctionsIn(t.Conditions); err != nil {
		return err
	}

	for _, name := range sdkshape.SortedKeys(t.Resources) {
		r := t.Resources[name]
		if err := t.checkFunctionsIn([]any{r.Properties, r.CreationPolicy, r.UpdatePolicy}); err != nil {
			return err
		}
	}

	for _, name := range sdkshape.SortedKeys(t.Outputs) {
		if err := t.checkFunctionsIn([]any{t.Outputs[name].Value, t.Outputs[name].Export}); err != nil {
			return err
		}
	}

	return nil
}

// checkFunctionsIn checks the functions in v.
func (t *Template) checkFunctionsIn(v any) error {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if err := t.checkFunctionsIn(e); err != nil {
				return err
			}
		}

	case Object:
		if name, arg, ok := asIntrinsic(v); ok {
			if err := t.checkFunction(name, arg); err != nil {
				return err
			}
		}

		for _, k := range sdkshape.SortedKeys(v) {
			if err := t.checkFunctionsIn(v[k]); err != nil {
				return err
			}
		}
	}

	return nil
}

func (t *Template) checkFunction(name string, arg any) error {
	switch name {
	case "Fn::GetAtt":
		return checkGetAtt(arg)
	case "Fn::Select":
		return checkSelect(arg)
	case "Fn::If":
		return t.checkIf(arg)
	}

	return t.checkArguments(name, arg)
}

// checkGetAtt checks the argument of Fn::GetAtt: RESOURCE.ATTRIBUTE, or a list of both. The attribute may be a function.
func checkGetAtt(arg any) error {
	var resource, attribute string
	switch arg := arg.(type) {
	case string:
		resource, attribute, _ = strings.Cut(arg, ".")
	case []any:
		if len(arg) == 2 {
			resource, _ = arg[0].(string)
			attribute, _ = ScalarText(arg[1])
			if IsFunction(arg[1]) {
				attribute = "a function"
			}
		}
	}

	if resource == "" || attribute == "" {
		return errMalformedGetAtt()
	}

	return nil
}

// checkSelect checks the argument of Fn::Select: an index and a list, which both may be functions.
func checkSelect(arg any) error {
	pair, _ := arg.([]any)
	if len(pair) != 2 {
		return errMalformedSelect()
	}

	list, isList := pair[1].([]any)
	if !isList && !IsFunction(pair[1]) {
		return errMalformedSelect()
	}

	if IsFunction(pair[0]) {
		return nil
	}

	text, _ := ScalarText(pair[0])
	index, err := strconv.Atoi(text)
	if err != nil {
		return errMalformedSelect()
	}

	if index < 0 || isList && index >= len(list) {
		return errNothingToSelect(index)
	}

	return nil
}

// checkIf checks the argument of Fn::If: the name of a condition and two values.
func (t *Template) checkIf(arg any) error {
	list, _ := arg.([]any)
	if len(list) != 3 {
		return errMalformedIf()
	}

	condition, ok := list[0].(string)
	if !ok {
		return errMalformedIf()
	}

	if _, known := t.Conditions[condition]; !known {
		return ErrorInTemplate("unresolved condition dependency %s in Fn::If", condition)
	}

	return nil
}

// IsFunction reports whether v is a function, whose value is not known before it is evaluated.
func IsFunction(v any) bool {
	m, ok := v.(Object)
	if !ok {
		return false
	}

	_, _, ok = asIntrinsic(m)

	return ok
}

func errMalformedGetAtt() error {
	return ErrorInTemplate(
		"every Fn::GetAtt object requires two non-empty parameters, the resource name and the resource attribute",
	)
}

func errMalformedSelect() error {
	return ErrorInTemplate("Fn::Select requires a list argument with two elements: an integer index and a list")
}

func errNothingToSelect(index int) error {
	return ErrorInTemplate("Fn::Select cannot select nonexistent value at index %d", index)
}

func errMalformedIf() error {
	return ErrorInTemplate("Fn::If requires a list argument with three elements")
}
