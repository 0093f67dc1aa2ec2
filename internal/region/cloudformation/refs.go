// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/record"
)

// reference is what a value names: a parameter, a pseudo parameter or a resource, and perhaps an attribute of that.
type reference struct{ name, attribute string }

// String is the reference as change sets show it.
func (r reference) String() string {
	if r.attribute == "" {
		return r.name
	}
	return r.name + "." + r.attribute
}

// variable finds ${…} in the text of Fn::Sub; what begins with ! is literal.
func variable() *regexp.Regexp { return regexp.MustCompile(`\$\{([^!{}][^{}]*)\}`) }

// references collects what v names, in order, each once.
func references(v any) []reference {
	found := map[reference]bool{}
	collect(v, found)
	out := make([]reference, 0, len(found))
	for r := range found {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b reference) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func collect(v any, into map[reference]bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			collect(e, into)
		}
	case tree:
		if name, arg, ok := calls(v); ok && collectCall(name, arg, into) {
			return
		}
		for _, e := range v {
			collect(e, into)
		}
	}
}

// collectCall collects what a function names; false if it is none of those that name something.
func collectCall(name string, arg any, into map[reference]bool) bool {
	switch name {
	case "Ref":
		text, ok := arg.(string)
		if ok {
			into[reference{name: text}] = true
		}
		return ok
	case "Fn::GetAtt":
		if logical, attribute, err := (scope{}).attOf(static(arg)); err == nil {
			into[reference{logical, attribute}] = true
		}
		return true
	case "Fn::Sub":
		collectSub(arg, into)
		return true
	}
	return false
}

// static is the argument of Fn::GetAtt, with an attribute's name that is a Ref left as a text that names none.
func static(arg any) any {
	list, _ := arg.([]any)
	if len(list) == 2 {
		if _, ok := list[1].(tree); ok {
			return []any{list[0], "*"}
		}
	}
	return arg
}

func collectSub(arg any, into map[reference]bool) {
	format, own := subParts(arg)
	for _, e := range own {
		collect(e, into)
	}
	for _, m := range variable().FindAllStringSubmatch(format, -1) {
		name, attribute, _ := strings.Cut(m[1], ".")
		if _, mine := own[m[1]]; !mine {
			into[reference{name, attribute}] = true
		}
	}
}

// subParts are the text of Fn::Sub and its own variables.
func subParts(arg any) (string, tree) {
	if s, ok := arg.(string); ok {
		return s, nil
	}
	list, _ := arg.([]any)
	if len(list) != 2 {
		return "", nil
	}
	s, _ := list[0].(string)
	own, _ := list[1].(tree)
	return s, own
}

func (s scope) sub(arg any) (any, error) {
	format, own := subParts(arg)
	if !isText(arg) && (own == nil || !isText(at(arg, 0))) {
		return nil, templateError("One or more Fn::Sub intrinsic functions don't specify expected arguments. Specify a string as first argument, and an optional second argument to specify a mapping of values to replace in the string")
	}
	var failed error
	open := false
	out := regexp.MustCompile(`\$\{[^{}]*\}`).ReplaceAllStringFunc(format, func(m string) string {
		name := m[2 : len(m)-1]
		if literal, ok := strings.CutPrefix(name, "!"); ok {
			return "${" + literal + "}"
		}
		v, err := s.variable(name, own)
		t, ok := text(v)
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
		return unknown{}, failed
	}
	return out, nil
}

// variable is the value of ${name}.
func (s scope) variable(name string, own tree) (any, error) {
	if v, ok := own[name]; ok {
		return s.eval(v)
	}
	if logical, attribute, ok := strings.Cut(name, "."); ok {
		return s.getAtt([]any{logical, attribute})
	}
	return s.refer(name)
}

// pseudoParameters are the names that every template may refer to.
func pseudoParameters() []string {
	return []string{
		"AWS::AccountId", "AWS::NotificationARNs", "AWS::NoValue", "AWS::Partition", "AWS::Region", "AWS::StackId",
		"AWS::StackName", "AWS::URLSuffix",
	}
}

// check refuses what no parameters could make right: names of nothing, unknown types, loops.
func (t *Template) check() error {
	switch {
	case len(t.Resources) > maxResources:
		return malformed("Number of resources, %d, is greater than maximum allowed, %d", len(t.Resources), maxResources)
	case len(t.Outputs) > maxOutputs:
		return malformed("Number of outputs, %d, is greater than maximum allowed, %d", len(t.Outputs), maxOutputs)
	case len(t.Parameters) > maxParams:
		return malformed("Number of parameters, %d, is greater than maximum allowed, %d", len(t.Parameters), maxParams)
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
	return t.checkLoops()
}

func (t *Template) checkTypes() error {
	known, missing := types(), map[string]bool{}
	for _, name := range record.Keys(t.Resources) {
		if _, ok := known[t.Resources[name].Type]; !ok {
			missing[t.Resources[name].Type] = true
		}
	}
	for _, name := range record.Keys(t.Resources) {
		r := t.Resources[name]
		if (r.DeletionPolicy == "Snapshot" || r.UpdateReplacePolicy == "Snapshot") && r.Type != "AWS::EC2::Volume" {
			return templateError("resource type %s does not support deletion policy Snapshot", r.Type)
		}
	}
	if len(missing) > 0 {
		return malformed("Unrecognized resource types: [%s]", strings.Join(record.Keys(missing), ", "))
	}
	return nil
}

// checkReferences refuses references to nothing in resources and outputs.
func (t *Template) checkReferences() error {
	missing := map[string]bool{}
	for _, name := range record.Keys(t.Resources) {
		r := t.Resources[name]
		for _, d := range r.DependsOn {
			if _, ok := t.Resources[d]; !ok {
				missing[d] = true
			}
		}
		if err := t.resolvable(name, []any{r.Properties, r.CreationPolicy, r.UpdatePolicy}, missing); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return malformed("Unresolved resource dependencies [%s] in the Resources block of the template", strings.Join(record.Keys(missing), ", "))
	}
	for _, name := range record.Keys(t.Outputs) {
		if err := t.resolvable("", []any{t.Outputs[name].Value, t.Outputs[name].Export}, missing); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return malformed("Unresolved resource dependencies [%s] in the Outputs block of the template", strings.Join(record.Keys(missing), ", "))
	}
	return nil
}

// resolvable notes the names in v that stand for nothing.
func (t *Template) resolvable(name string, v any, missing map[string]bool) error {
	for _, ref := range references(v) {
		_, resource := t.Resources[ref.name]
		_, param := t.Parameters[ref.name]
		switch {
		case ref.attribute == "" && (param || slices.Contains(pseudoParameters(), ref.name)):
		case !resource:
			missing[ref.name] = true
		case ref.name == name:
			return malformed("Circular dependency between resources: [%s]", name)
		case ref.attribute != "" && ref.attribute != "*" && !hasAttribute(t.Resources[ref.name].Type, ref.attribute):
			return templateError("resource %s does not support attribute type %s in Fn::GetAtt", ref.name, ref.attribute)
		}
	}
	return nil
}

// checkConditions refuses conditions that name nothing or each other in a circle.
func (t *Template) checkConditions() error {
	for _, name := range record.Keys(t.Conditions) {
		if err := t.follow(name, nil); err != nil {
			return err
		}
	}
	for _, name := range record.Keys(t.Resources) {
		if c := t.Resources[name].Condition; c != "" && t.Conditions[c] == nil {
			return malformed("Unresolved condition dependency %s in the Resources block of the template", c)
		}
	}
	for _, name := range record.Keys(t.Outputs) {
		if c := t.Outputs[name].Condition; c != "" && t.Conditions[c] == nil {
			return malformed("Unresolved condition dependency %s in the Outputs block of the template", c)
		}
	}
	return nil
}

func (t *Template) follow(name string, path []string) error {
	if slices.Contains(path, name) {
		return malformed("Circular dependencies for condition %s", name)
	}
	if len(path) > 100 {
		return malformed("Conditions are nested too deeply")
	}
	c, ok := t.Conditions[name]
	if !ok {
		return malformed("Unresolved condition dependency %s in the Conditions block of the template", name)
	}
	for _, next := range record.Keys(named(c, map[string]bool{})) {
		if err := t.follow(next, append(path, name)); err != nil {
			return err
		}
	}
	return nil
}

// named are the conditions that a condition names.
func named(v any, into map[string]bool) map[string]bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			named(e, into)
		}
	case tree:
		name, arg, ok := calls(v)
		if list, _ := arg.([]any); ok && name == "Fn::If" && len(list) > 0 && isText(list[0]) {
			into[list[0].(string)] = true //nolint:errcheck // isText said so
		}
		if ok && name == "Condition" && isText(arg) {
			into[arg.(string)] = true //nolint:errcheck // isText said so
			return into
		}
		for _, e := range v {
			named(e, into)
		}
	}
	return into
}

// after lists the resources that one depends on.
func (t *Template) after(name string) []string {
	r, found := t.Resources[name], map[string]bool{}
	for _, d := range r.DependsOn {
		found[d] = true
	}
	for _, ref := range references([]any{r.Properties, r.CreationPolicy, r.UpdatePolicy}) {
		if _, ok := t.Resources[ref.name]; ok {
			found[ref.name] = true
		}
	}
	return record.Keys(found)
}

// checkLoops refuses resources that wait for each other.
func (t *Template) checkLoops() error {
	left := map[string][]string{}
	for name := range t.Resources {
		left[name] = t.after(name)
	}
	for len(left) > 0 {
		var free []string
		for name, after := range left {
			if !slices.ContainsFunc(after, func(d string) bool { _, ok := left[d]; return ok }) {
				free = append(free, name)
			}
		}
		if len(free) == 0 {
			return invalid("Circular dependency between resources: [%s]", strings.Join(record.Keys(left), ", "))
		}
		for _, name := range free {
			delete(left, name)
		}
	}
	return nil
}
