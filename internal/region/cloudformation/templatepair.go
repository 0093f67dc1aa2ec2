// SPDX-License-Identifier: Apache-2.0

package cloudformation

import "slices"

// templatePair is a template and the one before it, with what is put into each.
type templatePair struct {
	oldTemplate, newTemplate *Template
	before, after            stackContent
}

// requestedChanges leaves out of the properties of a resource that differ those that nobody asked to change: the template says of them
// what it said, and nothing that they name is touched. So CloudFormation does not notice that a launch template that was
// rolled back has a newer version than the groups that the update had not reached.
func (e templatePair) requestedChanges(
	name string,
	properties []string,
	touched func(resource string) bool,
) []string {
	return slices.DeleteFunc(slices.Clone(properties), func(p string) bool {
		raw, told := e.newTemplate.Resources[name].Properties[p]
		old, was := e.oldTemplate.Resources[name].Properties[p]
		if !told || !was || canonicalText(raw) != canonicalText(old) || usesMappingOrCondition(raw) {
			return false
		}

		return !slices.ContainsFunc(findReferences(raw), func(r reference) bool {
			if _, resource := e.newTemplate.Resources[r.target]; resource {
				return touched(r.target)
			}

			return e.before.Params[r.target].effectiveText() != e.after.Params[r.target].effectiveText()
		})
	})
}

// usesMappingOrCondition tells whether a value is made of what lies outside of it and of resources: mappings, conditions, other stacks.
func usesMappingOrCondition(v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, usesMappingOrCondition)
	case object:
		if name, arg, ok := asIntrinsic(v); ok {
			return name == "Fn::FindInMap" || name == "Fn::If" || name == "Fn::ImportValue" || usesMappingOrCondition(arg)
		}

		for _, e := range v {
			if usesMappingOrCondition(e) {
				return true
			}
		}
	}

	return false
}
