// SPDX-License-Identifier: Apache-2.0

package cloudformation

import "slices"

// reduceDependencies removes the entries of DependsOn that follow from others, because the template's size is limited:
// a resource waits for everything that the resources wait for which it depends on or refers to.
func reduceDependencies(resources jsonObject) {
	direct := map[string][]string{}
	for id, r := range resources {
		body, _ := r.(jsonObject)
		after, _ := body["DependsOn"].([]string)
		direct[id] = append(findReferences(body["Properties"], resources), after...)
	}

	implied := map[string]map[string]bool{}
	for id, r := range resources {
		body, _ := r.(jsonObject)
		after, _ := body["DependsOn"].([]string)
		if after == nil {
			continue
		}

		left := slices.DeleteFunc(slices.Clone(after), func(d string) bool {
			return slices.ContainsFunc(direct[id], func(other string) bool {
				return other != d && reachable(other, direct, implied)[d]
			})
		})
		body["DependsOn"] = left
	}
}

// reachable returns the resources that a resource waits for, directly or not.
func reachable(id string, direct map[string][]string, known map[string]map[string]bool) map[string]bool {
	if out, ok := known[id]; ok {
		return out
	}

	out := map[string]bool{}
	known[id] = out // a template has no cycles
	for _, d := range direct[id] {
		out[d] = true
		for further := range reachable(d, direct, known) {
			out[further] = true
		}
	}

	return out
}

// findReferences returns the logical ids of the resources that a value refers to.
func findReferences(v any, resources jsonObject) []string {
	var out []string
	switch x := v.(type) {
	case jsonObject:
		if id, ok := x["Ref"].(string); ok && resources[id] != nil {
			out = append(out, id)
		}

		if at, ok := x["Fn::GetAtt"].([]string); ok {
			out = append(out, at[0])
		}

		for _, e := range x {
			out = append(out, findReferences(e, resources)...)
		}

	case []any:
		for _, e := range x {
			out = append(out, findReferences(e, resources)...)
		}

	case []jsonObject:
		for _, e := range x {
			out = append(out, findReferences(e, resources)...)
		}
	}

	return out
}
