// SPDX-License-Identifier: Apache-2.0

package terraform

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// keptAttributes returns the attributes of a resource that Terraform must not change after the
// creation: those that only a rollout changes, such as launch_template[0].version, and the initial
// hooks of a group of machines.
func keptAttributes(r graph.Resource) []string {
	rolledOut, ok := r.(graph.RolledOut)
	if !ok {
		return nil
	}

	var out []string
	for _, path := range rolledOut.KeptProperties() {
		out = append(out, attributePath(graph.Properties(r), strings.Split(path, "/")))
	}

	if _, isGroup := r.(awskind.AutoScalingGroup); isGroup && len(out) > 0 {
		out = append(out, initialHooks)
	}

	return out
}

// attributePath returns the path of a property in blocks of one item each.
func attributePath(fields []graph.Field, path []string) string {
	for _, f := range fields {
		if f.Property != path[0] {
			continue
		}

		if len(path) == 1 {
			return f.Attribute
		}

		return f.Attribute + "[0]." + attributePath(f.Nested, path[1:])
	}

	return ""
}
