// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// templatePair is the new template of a stack and the one before it, each with its content.
type templatePair struct {
	oldTemplate, newTemplate *template.Template
	before, after            stackContent
}

// requestedChanges removes from the changed properties of a resource those that the update did not ask to
// change: their text in the template is the same, and nothing that they refer to changes. For example, after
// a rollback a launch template has a newer version with the old content; groups that the update had not
// reached must not be updated to it.
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
