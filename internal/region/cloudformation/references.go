// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// reference is what a value names: a parameter, a pseudo parameter or a resource, and perhaps an attribute of that.
type reference struct{ target, attribute string }

// String is the reference as change sets show it.
func (r reference) String() string {
	if r.attribute == "" {
		return r.target
	}

	return r.target + "." + r.attribute
}

// variablePattern finds ${…} in the text of Fn::Sub; what begins with ! is literal.
func variablePattern() *regexp.Regexp { return regexp.MustCompile(`\$\{([^!{}][^{}]*)\}`) }

// findReferences collects what v names, in order, each once.
func findReferences(v any) []reference {
	found := map[reference]bool{}
	collectReferences(v, found)
	out := make([]reference, 0, len(found))
	for r := range found {
		out = append(out, r)
	}

	slices.SortFunc(out, func(a, b reference) int { return strings.Compare(a.String(), b.String()) })

	return out
}

func collectReferences(v any, into map[reference]bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			collectReferences(e, into)
		}

	case object:
		if name, arg, ok := asIntrinsic(v); ok && collectFromIntrinsic(name, arg, into) {
			return
		}

		for _, e := range v {
			collectReferences(e, into)
		}
	}
}

// collectFromIntrinsic collects what a function names; false if it is none of those that name something.
func collectFromIntrinsic(name string, arg any, into map[reference]bool) bool {
	switch name {
	case "Ref":
		text, ok := arg.(string)
		if ok {
			into[reference{target: text}] = true
		}

		return ok

	case "Fn::GetAtt":
		if logical, attribute, err := (evalScope{}).parseGetAtt(staticGetAtt(arg)); err == nil {
			into[reference{logical, attribute}] = true
		}

		return true

	case "Fn::Sub":
		collectFromSub(arg, into)
		return true
	}

	return false
}

// staticGetAtt is the argument of Fn::GetAtt, with an attribute's name that is a Ref left as a text that names none.
func staticGetAtt(arg any) any {
	list, _ := arg.([]any)
	if len(list) == 2 {
		if _, ok := list[1].(object); ok {
			return []any{list[0], "*"}
		}
	}

	return arg
}

func collectFromSub(arg any, into map[reference]bool) {
	format, own := parseSub(arg)
	for _, e := range own {
		collectReferences(e, into)
	}

	for _, m := range variablePattern().FindAllStringSubmatch(format, -1) {
		name, attribute, _ := strings.Cut(m[1], ".")
		if _, mine := own[m[1]]; !mine {
			into[reference{name, attribute}] = true
		}
	}
}

// parseSub are the text of Fn::Sub and its own variables.
func parseSub(arg any) (string, object) {
	if s, ok := arg.(string); ok {
		return s, nil
	}

	list, _ := arg.([]any)
	if len(list) != 2 {
		return "", nil
	}

	s, _ := list[0].(string)
	own, _ := list[1].(object)

	return s, own
}

func (s evalScope) fnSub(arg any) (any, error) {
	format, own := parseSub(arg)
	if !isString(arg) && (own == nil || !isString(valueAt(arg, 0))) {
		return nil, templateError(
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
		t, ok := scalarText(v)

		switch {
		case err != nil && failed == nil:
			failed = err
		case isUnknown(v):
			open = true
		case !ok && failed == nil:
			failed = templateError("variable %s in Fn::Sub expression does not resolve to a string", name)
		}

		return t
	})
	if failed != nil || open {
		return unknownValue{}, failed
	}

	return out, nil
}

// subVariable is the value of ${name}.
func (s evalScope) subVariable(name string, own object) (any, error) {
	if v, ok := own[name]; ok {
		return s.eval(v)
	}

	if logical, attribute, ok := strings.Cut(name, "."); ok {
		return s.fnGetAtt([]any{logical, attribute})
	}

	return s.resolveRef(name)
}

// pseudoParameters are the names that every template may refer to.
func pseudoParameters() []string {
	return []string{
		"AWS::AccountId", "AWS::NotificationARNs", "AWS::NoValue", "AWS::Partition", "AWS::Region", "AWS::StackId",
		"AWS::StackName", "AWS::URLSuffix",
	}
}

// validate refuses what no parameters could make right: names of nothing, unknown types, loops.
func (t *Template) validate() error {
	switch {
	case len(t.Resources) > maxResources:
		return formatError(
			"Number of resources, %d, is greater than maximum allowed, %d",
			len(t.Resources),
			maxResources,
		)

	case len(t.Outputs) > maxOutputs:
		return formatError(
			"Number of outputs, %d, is greater than maximum allowed, %d",
			len(t.Outputs),
			maxOutputs,
		)

	case len(t.Parameters) > maxParameters:
		return formatError(
			"Number of parameters, %d, is greater than maximum allowed, %d",
			len(t.Parameters),
			maxParameters,
		)
	}

	if err := t.checkTypes(); err != nil {
		return err
	}

	if err := t.checkReferences(); err != nil {
		return err
	}

	if err := t.checkConditions(); err != nil {
		return err
	}

	return t.checkResourceLoops()
}

func (t *Template) checkTypes() error {
	known := resourceTypes()
	missing := map[string]bool{}
	for _, name := range sdkshape.SortedKeys(t.Resources) {
		if _, ok := known[t.Resources[name].Type]; !ok {
			missing[t.Resources[name].Type] = true
		}
	}

	for _, name := range sdkshape.SortedKeys(t.Resources) {
		r := t.Resources[name]
		if (r.DeletionPolicy == "Snapshot" || r.UpdateReplacePolicy == "Snapshot") &&
			r.Type != "AWS::EC2::Volume" {
			return templateError("resource type %s does not support deletion policy Snapshot", r.Type)
		}
	}

	if len(missing) > 0 {
		return formatError(
			"Unrecognized resource types: [%s]",
			strings.Join(sdkshape.SortedKeys(missing), ", "),
		)
	}

	return nil
}

// checkReferences refuses references to nothing in resources and outputs.
func (t *Template) checkReferences() error {
	missing := map[string]bool{}
	for _, name := range sdkshape.SortedKeys(t.Resources) {
		r := t.Resources[name]
		for _, d := range r.DependsOn {
			if _, ok := t.Resources[d]; !ok {
				missing[d] = true
			}
		}

		if err := t.collectUnresolved(name, []any{r.Properties, r.CreationPolicy, r.UpdatePolicy}, missing); err != nil {
			return err
		}
	}

	if len(missing) > 0 {
		return formatError(
			"Unresolved resource dependencies [%s] in the Resources block of the template",
			strings.Join(sdkshape.SortedKeys(missing), ", "),
		)
	}

	for _, name := range sdkshape.SortedKeys(t.Outputs) {
		if err := t.collectUnresolved("", []any{t.Outputs[name].Value, t.Outputs[name].Export}, missing); err != nil {
			return err
		}
	}

	if len(missing) > 0 {
		return formatError(
			"Unresolved resource dependencies [%s] in the Outputs block of the template",
			strings.Join(sdkshape.SortedKeys(missing), ", "),
		)
	}

	return nil
}

// collectUnresolved notes the names in v that stand for nothing.
func (t *Template) collectUnresolved(name string, v any, missing map[string]bool) error {
	for _, ref := range findReferences(v) {
		_, resource := t.Resources[ref.target]
		_, param := t.Parameters[ref.target]
		switch {
		case ref.attribute == "" && (param || slices.Contains(pseudoParameters(), ref.target)):
		case !resource:
			missing[ref.target] = true
		case ref.target == name:
			return formatError("Circular dependency between resources: [%s]", name)
		case ref.attribute != "" && ref.attribute != "*" && !hasAttribute(t.Resources[ref.target].Type, ref.attribute):
			return templateError(
				"resource %s does not support attribute type %s in Fn::GetAtt",
				ref.target,
				ref.attribute,
			)
		}
	}

	return nil
}

// checkConditions refuses conditions that name nothing or each other in a circle.
func (t *Template) checkConditions() error {
	for _, name := range sdkshape.SortedKeys(t.Conditions) {
		if err := t.checkConditionLoop(name, nil); err != nil {
			return err
		}
	}

	for _, name := range sdkshape.SortedKeys(t.Resources) {
		if c := t.Resources[name].Condition; c != "" && t.Conditions[c] == nil {
			return formatError("Unresolved condition dependency %s in the Resources block of the template", c)
		}
	}

	for _, name := range sdkshape.SortedKeys(t.Outputs) {
		if c := t.Outputs[name].Condition; c != "" && t.Conditions[c] == nil {
			return formatError("Unresolved condition dependency %s in the Outputs block of the template", c)
		}
	}

	return nil
}

func (t *Template) checkConditionLoop(name string, path []string) error {
	if slices.Contains(path, name) {
		return formatError("Circular dependencies for condition %s", name)
	}

	if len(path) > 100 {
		return formatError("Conditions are nested too deeply")
	}

	c, ok := t.Conditions[name]
	if !ok {
		return formatError("Unresolved condition dependency %s in the Conditions block of the template", name)
	}

	for _, next := range sdkshape.SortedKeys(collectConditions(c, map[string]bool{})) {
		if err := t.checkConditionLoop(next, append(path, name)); err != nil {
			return err
		}
	}

	return nil
}

// collectConditions are the conditions that a condition names.
func collectConditions(v any, into map[string]bool) map[string]bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			collectConditions(e, into)
		}

	case object:
		name, arg, ok := asIntrinsic(v)
		if list, _ := arg.([]any); ok && name == "Fn::If" && len(list) > 0 && isString(list[0]) {
			into[list[0].(string)] = true //nolint:errcheck // isString said so
		}

		if ok && name == "Condition" && isString(arg) {
			into[arg.(string)] = true //nolint:errcheck // isString said so
			return into
		}

		for _, e := range v {
			collectConditions(e, into)
		}
	}

	return into
}

// dependenciesOf lists the resources that one depends on.
func (t *Template) dependenciesOf(name string) []string {
	r := t.Resources[name]
	found := map[string]bool{}
	for _, d := range r.DependsOn {
		found[d] = true
	}

	for _, ref := range findReferences([]any{r.Properties, r.CreationPolicy, r.UpdatePolicy}) {
		if _, ok := t.Resources[ref.target]; ok {
			found[ref.target] = true
		}
	}

	return sdkshape.SortedKeys(found)
}

// checkResourceLoops refuses resources that wait for each other.
func (t *Template) checkResourceLoops() error {
	left := map[string][]string{}
	for name := range t.Resources {
		left[name] = t.dependenciesOf(name)
	}

	for len(left) > 0 {
		var free []string
		for name, after := range left {
			if !slices.ContainsFunc(after, func(d string) bool { _, ok := left[d]; return ok }) {
				free = append(free, name)
			}
		}

		if len(free) == 0 {
			return validationError(
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
