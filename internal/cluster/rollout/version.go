// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"maps"
	"slices"
)

// ServingVersion returns the launch template version that most serving machines of a group have; empty if none
// serves. Of several it is the one that sorts first.
func ServingVersion(o Observation, g Group) string {
	count := map[string]int{}
	for _, m := range (update{observation: o}).machinesOf(g) {
		if m.IsServing() {
			count[m.Version]++
		}
	}

	versions := slices.Sorted(maps.Keys(count))
	if len(versions) == 0 {
		return ""
	}

	return slices.MaxFunc(versions, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[a], count[b]), cmp.Compare(b, a))
	})
}
