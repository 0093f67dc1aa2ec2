// SPDX-License-Identifier: Apache-2.0

package terraform

import (
	"fmt"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/render"
)

// initialHooks is the attribute of a group with the hooks that it has before its first machine.
// Terraform never reads it, and replaces the group if it changes: so every group ignores its
// changes, also one without hooks, which may get or lose a warm pool later.
const initialHooks = "initial_lifecycle_hook"

// addInitialHooks adds the launch hooks of a group with a warm pool to the group itself: Terraform
// creates the pool with the group, so a hook of its own resource would come too late. That resource
// puts the same hook again, and changes it later.
func (r renderer) addInitialHooks(group *graph.Node, body map[string]any) error {
	var blocks []any
	for _, hook := range render.LaunchHooks(r.graph, group) {
		block, err := r.renderBlock(propertyPath{node: hook}, graph.Fields(hook.Resource))
		if err != nil {
			return fmt.Errorf("render %s: %w", hook.Addr, err)
		}

		delete(block, "autoscaling_group_name")
		blocks = append(blocks, block)
	}

	if blocks != nil {
		body[initialHooks] = blocks
	}

	return nil
}
