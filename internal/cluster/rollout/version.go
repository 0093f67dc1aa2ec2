// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"maps"
	"slices"
)

// IsBehind reports whether new machines of the group are launched from another version than its machines are to have.
func (g Group) IsBehind() bool { return g.Launches != "" && g.Launches != g.Version }

// GroupsBehind returns the groups to update that are behind: the control plane first.
func GroupsBehind(o Observation, opts Options) []Group {
	groups := (update{observation: o, options: opts}).selectedGroups()

	return slices.DeleteFunc(groups, func(g Group) bool { return !g.IsBehind() })
}

// GroupsToMove returns the groups that must launch machines from their Version before a decision is carried out: those that
// launch a machine because of it. When the update is complete, it is every group.
func GroupsToMove(o Observation, opts Options, d Decision) []Group {
	behind := GroupsBehind(o, opts)
	if d.IsDone() && !opts.Stopping {
		return behind
	}

	return slices.DeleteFunc(behind, func(g Group) bool {
		return !slices.ContainsFunc(d.Actions, func(a Action) bool {
			launches := a.Type == ActionDetach || a.Type == ActionTerminate

			return launches && a.Machine.Group == g.Name && a.Machine.Slot == g.Slot
		})
	})
}

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
