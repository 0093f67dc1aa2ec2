// SPDX-License-Identifier: Apache-2.0

package terraform

import (
	"fmt"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/render"
)

// addInitialHooks adds the launch hooks of a group with a warm pool to the group itself: Terraform creates the pool with the
// group, so a hook of its own resource would come too late. That resource keeps the hook as it is afterwards.
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
		body["initial_lifecycle_hook"] = blocks
	}

	return nil
}
