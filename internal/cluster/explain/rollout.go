// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// GroupsWithOldMachines returns the instance groups of which running machines keep former settings after the steps,
// until they are replaced. The steps must have explanations. The names are sorted.
func GroupsWithOldMachines(steps []plan.Step) []string {
	var out []string
	for _, s := range steps {
		if s.Action == plan.Update && s.Kind == launchTemplateKind() && s.Effect == plan.OnNewMachines {
			out = append(out, groupOf(s))
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// FollowsNothing reports whether the steps change the node document of a group in such a way that its running machines
// apply none of it. It is false for a group without a step, of which nothing is known.
func FollowsNothing(steps []plan.Step, group string) bool {
	found := false
	for _, s := range steps {
		if s.Action != plan.Update || s.Kind != launchTemplateKind() || groupOf(s) != group {
			continue
		}

		for _, setting := range userDataChanges(s) {
			if setting.Effect != effectReplace && setting.Effect != "" {
				return false
			}

			found = true
		}
	}

	return found
}

// userDataChanges returns the settings of a launch template's user data that differ.
func userDataChanges(s plan.Step) []plan.Setting {
	for _, c := range s.Changes {
		if c.Property == UserDataProperty {
			return c.Settings
		}
	}

	return nil
}

func launchTemplateKind() string { return awskind.LaunchTemplate{}.Kind().Name }

// groupOf returns the instance group whose machines a launch template starts: each of them has its name in a tag.
func groupOf(s plan.Step) string {
	template, ok := s.Desired().(awskind.LaunchTemplate)
	if !ok {
		return ""
	}

	for _, spec := range template.Data.Tags {
		if name := spec.Tags[awskind.TagGroup]; name != "" {
			return name
		}
	}

	return ""
}
