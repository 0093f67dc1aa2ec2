// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// templatePair is a template and the one before it, with what is put into each.
type templatePair struct {
	oldTemplate, newTemplate *template.Template
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
		if !told || !was || template.CanonicalText(raw) != template.CanonicalText(old) || template.UsesMappingOrCondition(raw) {
			return false
		}

		return !slices.ContainsFunc(template.FindReferences(raw), func(r template.Reference) bool {
			if _, resource := e.newTemplate.Resources[r.Target]; resource {
				return touched(r.Target)
			}

			return e.before.Params[r.Target].EffectiveText() != e.after.Params[r.Target].EffectiveText()
		})
	})
}
