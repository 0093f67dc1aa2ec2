// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"maps"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// mergeTags returns the tags of a resource: the stack's, and its own, which take precedence.
func mergeTags(stack map[string]string, property any) map[string]string {
	out := maps.Clone(stack)
	if out == nil {
		out = map[string]string{}
	}

	list, _ := property.([]any)

	for _, e := range list {
		m, _ := e.(template.Object)
		k, _ := template.ScalarText(m["Key"])
		v, _ := template.ScalarText(m["Value"])
		out[k] = v
	}

	if m, ok := property.(template.Object); ok {
		for k, e := range m {
			out[k], _ = template.ScalarText(e)
		}
	}

	return out
}

// tagObjects returns tags as a list of objects with Key and Value.
func tagObjects(tags map[string]string) []any {
	out := []any{}
	for _, k := range sdkshape.SortedKeys(tags) {
		out = append(out, template.Object{"Key": k, "Value": tags[k]})
	}

	return out
}

// resourceTags returns the tags that the resource should have.
func (req *Request) resourceTags() []any {
	return tagObjects(mergeTags(req.StackTags, req.Properties["Tags"]))
}

// updateTags calls set with the tags to add or change, and drop with the keys to remove. property is the one
// that has the resource's own tags.
func (req *Request) updateTags(
	property string,
	set func([]any) error,
	drop func(keys []any) error,
) error {
	want := mergeTags(req.StackTags, req.Properties[property])
	have := mergeTags(req.OldStackTags, req.OldProperties[property])
	changed := map[string]string{}
	gone := []any{}

	for k, v := range want {
		if old, ok := have[k]; !ok || old != v {
			changed[k] = v
		}
	}

	for _, k := range sdkshape.SortedKeys(have) {
		if _, ok := want[k]; !ok {
			gone = append(gone, k)
		}
	}

	if len(gone) > 0 {
		if err := drop(gone); err != nil {
			return err
		}
	}

	if len(changed) > 0 {
		return set(tagObjects(changed))
	}

	return nil
}
