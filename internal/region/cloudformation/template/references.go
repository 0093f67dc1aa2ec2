// SPDX-License-Identifier: Apache-2.0

package template

import (
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// Reference is a reference of a value to a parameter, a pseudo parameter or a resource.
type Reference struct {
	Target    string // name of a parameter, a pseudo parameter or a resource
	Attribute string // attribute of the resource; empty for Ref
}

// String returns the reference as change sets show it.
func (r Reference) String() string {
	if r.Attribute == "" {
		return r.Target
	}

	return r.Target + "." + r.Attribute
}

// variablePattern matches ${…} in the text of Fn::Sub, except ${!…}, which is literal.
func variablePattern() *regexp.Regexp { return regexp.MustCompile(`\$\{([^!{}][^{}]*)\}`) }

// FindReferences returns the references in v, sorted, each once.
func FindReferences(v any) []Reference {
	found := map[Reference]bool{}
	collectReferences(v, found)
	out := make([]Reference, 0, len(found))
	for r := range found {
		out = append(out, r)
	}

	slices.SortFunc(out, func(a, b Reference) int { return strings.Compare(a.String(), b.String()) })

	return out
}

func collectReferences(v any, into map[Reference]bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			collectReferences(e, into)
		}

	case Object:
		if name, arg, ok := asIntrinsic(v); ok && collectFromIntrinsic(name, arg, into) {
			return
		}

		for _, e := range v {
			collectReferences(e, into)
		}
	}
}

// collectFromIntrinsic collects the references of a function; false if its argument has to be searched.
func collectFromIntrinsic(name string, arg any, into map[Reference]bool) bool {
	switch name {
	case "Ref":
		text, ok := arg.(string)
		if ok {
			into[Reference{Target: text}] = true
		}

		return ok

	case "Fn::GetAtt":
		if logical, attribute, err := (Scope{}).parseGetAtt(staticGetAtt(arg)); err == nil {
			into[Reference{logical, attribute}] = true
		}

		return true

	case "Fn::Sub":
		collectFromSub(arg, into)
		return true
	}

	return false
}

// staticGetAtt returns the argument of Fn::GetAtt, with the attribute "*" if the attribute's name is a Ref.
func staticGetAtt(arg any) any {
	list, _ := arg.([]any)
	if len(list) == 2 {
		if _, ok := list[1].(Object); ok {
			return []any{list[0], "*"}
		}
	}

	return arg
}

func collectFromSub(arg any, into map[Reference]bool) {
	format, own := parseSub(arg)
	for _, e := range own {
		collectReferences(e, into)
	}

	for _, m := range variablePattern().FindAllStringSubmatch(format, -1) {
		name, attribute, _ := strings.Cut(m[1], ".")
		if _, mine := own[m[1]]; !mine {
			into[Reference{name, attribute}] = true
		}
	}
}

// parseSub returns the text of Fn::Sub and its own variables.
func parseSub(arg any) (string, Object) {
	if s, ok := arg.(string); ok {
		return s, nil
	}

	list, _ := arg.([]any)
	if len(list) != 2 {
		return "", nil
	}

	s, _ := list[0].(string)
	own, _ := list[1].(Object)

	return s, own
}

// isSubArgument reports whether the argument of Fn::Sub is a string, or a list of a string and a map.
func isSubArgument(arg any, own Object) bool {
	return isString(arg) || own != nil && isString(ValueAt(arg, 0))
}

func (s Scope) fnSub(arg any) (any, error) {
	format, own := parseSub(arg)
	if !isSubArgument(arg, own) {
		return nil, ErrorInTemplate(
			"One or more Fn::Sub intrinsic functions don't specify expected arguments. Specify a string as first argument, and an optional second argument to specify a mapping of values to replace in the string",
		)
	}

	var failed error
	open := false
	out := regexp.MustCompile(`\$\{[^{}]*\}`).ReplaceAllStringFunc(format, func(m string) string {
		name := m[2 : len(m)-1]
		if literal, ok := strings.CutPrefix(name, "!"); ok {
			return "${" + literal + "}"
		}

		v, err := s.subVariable(name, own)
		if unknown, ok := v.(UnknownValue); ok && err == nil {
			open = true
			return unknown.String()
		}

		t, ok := ScalarText(v)

		switch {
		case err != nil && failed == nil:
			failed = err
		case !ok && failed == nil:
			failed = ErrorInTemplate("variable %s in Fn::Sub expression does not resolve to a string", name)
		}

		return t
	})
	if failed != nil || open {
		return UnknownValue{Text: out}, failed
	}

	return out, nil
}

// subVariable returns the value of ${name}.
func (s Scope) subVariable(name string, own Object) (any, error) {
	if v, ok := own[name]; ok {
		return s.Eval(v)
	}

	if name == "" {
		return nil, ErrorInTemplate(
			"variable names in Fn::Sub syntax must contain only alphanumeric characters, underscores, periods, and colons",
		)
	}

	if logical, attribute, ok := strings.Cut(name, "."); ok {
		return s.fnGetAtt([]any{logical, attribute})
	}

	return s.resolveRef(name)
}

// pseudoParameters returns the names of the pseudo parameters.
func pseudoParameters() []string {
	return []string{
		"AWS::AccountId", "AWS::NotificationARNs", "AWS::NoValue", "AWS::Partition", "AWS::Region", "AWS::StackId",
		"AWS::StackName", "AWS::URLSuffix",
	}
}

// validate refuses a template that is invalid for all values of its parameters: it exceeds a limit, has an
// unknown type, an unresolved reference or a circular dependency.
func (t *Template) validate(types Catalog) error {
	if err := t.checkQuotas(); err != nil {
		return err
	}

	if err := t.checkTypes(types); err != nil {
		return err
	}

	if err := t.checkPolicies(types); err != nil {
		return err
	}

	if err := t.checkFunctions(); err != nil {
		return err
	}

	if err := t.checkReferences(types); err != nil {
		return err
	}

	if err := t.checkConditions(); err != nil {
		return err
	}

	return t.checkResourceLoops()
}

func (t *Template) checkTypes(types Catalog) error {
	missing := map[string]bool{}
	for _, name := range sdkshape.SortedKeys(t.Resources) {
		if !types.HasType(t.Resources[name].Type) {
			missing[t.Resources[name].Type] = true
		}
	}

	if len(missing) > 0 {
		return FormatError(
			"Unrecognized resource types: [%s]",
			strings.Join(sdkshape.SortedKeys(missing), ", "),
		)
	}

	return nil
}

// checkReferences refuses unresolved references in resources and outputs.
func (t *Template) checkReferences(types Catalog) error {
	missing := map[string]bool{}
	for _, name := range sdkshape.SortedKeys(t.Resources) {
		r := t.Resources[name]
		for _, d := range r.DependsOn {
			if _, ok := t.Resources[d]; !ok {
				missing[d] = true
			}
		}

		if err := t.collectUnresolved(
			types,
			name,
			[]any{r.Properties, r.CreationPolicy, r.UpdatePolicy},
			missing,
		); err != nil {
			return err
		}
	}

	if len(missing) > 0 {
		return FormatError(
			"Unresolved resource dependencies [%s] in the Resources block of the template",
			strings.Join(sdkshape.SortedKeys(missing), ", "),
		)
	}

	for _, name := range sdkshape.SortedKeys(t.Outputs) {
		if err := t.collectUnresolved(
			types,
			"",
			[]any{t.Outputs[name].Value, t.Outputs[name].Export},
			missing,
		); err != nil {
			return err
		}
	}

	if len(missing) > 0 {
		return FormatError(
			"Unresolved resource dependencies [%s] in the Outputs block of the template",
			strings.Join(sdkshape.SortedKeys(missing), ", "),
		)
	}

	return nil
}

// collectUnresolved adds the unresolved references in v to missing.
func (t *Template) collectUnresolved(types Catalog, name string, v any, missing map[string]bool) error {
	for _, ref := range FindReferences(v) {
		_, resource := t.Resources[ref.Target]
		_, param := t.Parameters[ref.Target]
		switch {
		case ref.Attribute == "" && (param || slices.Contains(pseudoParameters(), ref.Target)):
		case !resource:
			missing[ref.Target] = true
		case ref.Target == name:
			return FormatError("Circular dependency between resources: [%s]", name)
		case ref.Attribute != "" && ref.Attribute != "*" && !types.HasAttribute(
			t.Resources[ref.Target].Type,
			ref.Attribute,
		):
			return ErrorInTemplate(
				"resource %s does not support attribute type %s in Fn::GetAtt",
				ref.Target,
				ref.Attribute,
			)
		}
	}

	return nil
}

// checkConditions refuses conditions that refer to an unknown condition, or to each other in a cycle.
func (t *Template) checkConditions() error {
	for _, name := range sdkshape.SortedKeys(t.Conditions) {
		if err := t.checkConditionLoop(name, nil); err != nil {
			return err
		}
	}

	for _, name := range sdkshape.SortedKeys(t.Resources) {
		if c := t.Resources[name].Condition; c != "" && t.Conditions[c] == nil {
			return FormatError("Unresolved condition dependency %s in the Resources block of the template", c)
		}
	}

	for _, name := range sdkshape.SortedKeys(t.Outputs) {
		if c := t.Outputs[name].Condition; c != "" && t.Conditions[c] == nil {
			return FormatError("Unresolved condition dependency %s in the Outputs block of the template", c)
		}
	}

	return nil
}

func (t *Template) checkConditionLoop(name string, path []string) error {
	if slices.Contains(path, name) {
		return FormatError("Circular dependencies for condition %s", name)
	}

	if len(path) > 100 {
		return FormatError("Conditions are nested too deeply")
	}

	c, ok := t.Conditions[name]
	if !ok {
		return FormatError("Unresolved condition dependency %s in the Conditions block of the template", name)
	}

	for _, next := range sdkshape.SortedKeys(collectConditions(c, map[string]bool{})) {
		if err := t.checkConditionLoop(next, append(path, name)); err != nil {
			return err
		}
	}

	return nil
}

// collectConditions adds the conditions that v refers to.
func collectConditions(v any, into map[string]bool) map[string]bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			collectConditions(e, into)
		}

	case Object:
		name, arg, ok := asIntrinsic(v)
		if list, _ := arg.([]any); ok && name == "Fn::If" && len(list) > 0 {
			if condition, ok := list[0].(string); ok {
				into[condition] = true
			}
		}

		if condition, isText := arg.(string); ok && name == "Condition" && isText {
			into[condition] = true
			return into
		}

		for _, e := range v {
			collectConditions(e, into)
		}
	}

	return into
}

// DependenciesOf returns the resources that a resource depends on, sorted.
func (t *Template) DependenciesOf(name string) []string {
	r := t.Resources[name]
	found := map[string]bool{}
	for _, d := range r.DependsOn {
		found[d] = true
	}

	for _, ref := range FindReferences([]any{r.Properties, r.CreationPolicy, r.UpdatePolicy}) {
		if _, ok := t.Resources[ref.Target]; ok {
			found[ref.Target] = true
		}
	}

	return sdkshape.SortedKeys(found)
}

// checkResourceLoops refuses circular dependencies between resources.
func (t *Template) checkResourceLoops() error {
	left := map[string][]string{}
	for name := range t.Resources {
		left[name] = t.DependenciesOf(name)
	}

	for len(left) > 0 {
		var free []string
		for name, after := range left {
			if !slices.ContainsFunc(after, func(d string) bool { _, ok := left[d]; return ok }) {
				free = append(free, name)
			}
		}

		if len(free) == 0 {
			return ValidationError(
				"Circular dependency between resources: [%s]",
				strings.Join(sdkshape.SortedKeys(left), ", "),
			)
		}

		for _, name := range free {
			delete(left, name)
		}
	}

	return nil
}

// UsesMappingOrCondition reports whether a value depends on a mapping, a condition or an export of another
// stack, so that it can change although its text and its references do not.
func UsesMappingOrCondition(v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, UsesMappingOrCondition)
	case Object:
		if name, arg, ok := asIntrinsic(v); ok {
			return name == "Fn::FindInMap" || name == "Fn::If" || name == "Fn::ImportValue" || UsesMappingOrCondition(arg)
		}

		for _, e := range v {
			if UsesMappingOrCondition(e) {
				return true
			}
		}
	}

	return false
}
