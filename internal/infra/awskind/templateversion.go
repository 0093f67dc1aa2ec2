// SPDX-License-Identifier: Apache-2.0

package awskind

import (
	"strconv"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// roleBastion is the value of [TagRole] of a group that no rolling update replaces.
const roleBastion = "bastion"

// KeepFrom implements [graph.RolledOut]: the group keeps the version of its launch template, which a rolling update sets.
// It does not keep $Latest or $Default, and not the version of another template.
func (g AutoScalingGroup) KeepFrom(existing graph.Resource) graph.Resource {
	have, isGroup := existing.(AutoScalingGroup)
	if !isGroup || g.Tags[TagRole] == roleBastion {
		return g
	}

	from := have.LaunchedFrom()
	version, _ := from.Version.Literal()
	if _, err := strconv.ParseInt(version, 10, 64); err != nil || g.LaunchedFrom().ID.Literal() != from.ID.Literal() {
		return g
	}

	if g.usesMixedInstances() {
		g.MixedInstances.Launch.Template.Version = from.Version
	} else {
		g.Template.Version = from.Version
	}

	return g
}

// KeptProperties implements [graph.RolledOut].
func (g AutoScalingGroup) KeptProperties() []string {
	switch {
	case g.Tags[TagRole] == roleBastion:
		return nil
	case g.usesMixedInstances():
		return []string{"MixedInstancesPolicy/LaunchTemplate/LaunchTemplateSpecification/Version"}
	}

	return []string{"LaunchTemplate/Version"}
}

// LaunchedFrom returns the launch template of a group's machines.
func (g AutoScalingGroup) LaunchedFrom() TemplateSpec {
	if g.usesMixedInstances() {
		return TemplateSpec(g.MixedInstances.Launch.Template)
	}

	return g.Template
}

func (g AutoScalingGroup) usesMixedInstances() bool {
	return len(g.MixedInstances.Launch.Overrides) > 0
}
