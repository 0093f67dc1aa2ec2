// SPDX-License-Identifier: Apache-2.0

package cloudformation

import "slices"

// edition is a template and the one before it, with what is put into each.
type edition struct {
	old, t        *Template
	before, after content
}

// asked leaves out of the properties of a resource that differ those that nobody asked to change: the template says of them
// what it said, and nothing that they name is touched. So CloudFormation does not notice that a launch template that was
// rolled back has a newer version than the groups that the update had not reached.
func (e edition) asked(name string, properties []string, touched func(resource string) bool) []string {
	return slices.DeleteFunc(slices.Clone(properties), func(p string) bool {
		raw, told := e.t.Resources[name].Properties[p]
		old, was := e.old.Resources[name].Properties[p]
		if !told || !was || canonical(raw) != canonical(old) || chooses(raw) {
			return false
		}
		return !slices.ContainsFunc(references(raw), func(r reference) bool {
			if _, resource := e.t.Resources[r.name]; resource {
				return touched(r.name)
			}
			return e.before.Params[r.name].use() != e.after.Params[r.name].use()
		})
	})
}

// chooses tells whether a value is made of what lies outside of it and of resources: mappings, conditions, other stacks.
func chooses(v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, chooses)
	case tree:
		if name, arg, ok := calls(v); ok {
			return name == "Fn::FindInMap" || name == "Fn::If" || name == "Fn::ImportValue" || chooses(arg)
		}
		for _, e := range v {
			if chooses(e) {
				return true
			}
		}
	}
	return false
}
