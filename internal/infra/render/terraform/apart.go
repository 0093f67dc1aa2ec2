// SPDX-License-Identifier: Apache-2.0

package terraform

import (
	"fmt"
	"strconv"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/render"
)

// addSeparateResources adds the properties of n that Terraform has as separate resources, one for each item of a list.
func (r renderer) addSeparateResources(n *graph.Node, resources map[string]map[string]any) error {
	for _, f := range graph.Fields(n.Resource) {
		list, ok := f.Value.([]any)
		if f.Render.TerraformOwnType == "" || !ok {
			continue
		}

		bodies, err := r.renderBlocks(propertyPath{node: n, path: f.Property}, f.Nested, list)
		if err != nil {
			return fmt.Errorf("render %s of %s: %w", f.Property, n.Addr, err)
		}

		if resources[f.Render.TerraformOwnType] == nil {
			resources[f.Render.TerraformOwnType] = map[string]any{}
		}

		for i, body := range bodies {
			attributes, ok := body.(map[string]any)
			if !ok {
				continue
			}

			parent := any("${" + r.renderReference(graph.Symbol{Addr: n.Addr}) + "}")
			if f.Render.TerraformParentIsList {
				parent = []any{parent}
			}

			attributes[f.Render.TerraformParentAttribute] = parent
			resources[f.Render.TerraformOwnType][SeparateLabel(r.labels[n.Addr], i)] = attributes
		}
	}

	return nil
}

// SeparateLabel returns the label of the item with a number, from 0, that Terraform has as a resource of its own. label is
// that of the resource to which it belongs.
func SeparateLabel(label string, number int) string {
	if number == 0 {
		return label
	}

	return render.SafeLabel(label + "-" + strconv.Itoa(number+1))
}
