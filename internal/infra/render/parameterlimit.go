// SPDX-License-Identifier: Apache-2.0

package render

import (
	"maps"
	"slices"
)

// LimitTo returns p with at most limit parameters. It removes all parameters of one property at a time, the
// least important property first, so that a property is a parameter of every group or of none.
func (p Parameters) LimitTo(limit int) Parameters {
	out := Parameters{items: slices.Clone(p.items), nameByProperty: maps.Clone(p.nameByProperty)}
	for len(out.items) > limit {
		least := slices.MaxFunc(
			out.items,
			func(a, b Parameter) int { return parameterDropRank(a.Property) - parameterDropRank(b.Property) },
		).Property

		out.items = slices.DeleteFunc(out.items, func(item Parameter) bool { return item.Property == least })
		left := map[string]bool{}
		for _, item := range out.items {
			left[item.Name] = true
		}

		maps.DeleteFunc(out.nameByProperty, func(_, name string) bool { return !left[name] })
	}

	return out
}

// parameterDropRank returns a higher number for a less important property. Users set machine types and counts
// most often; the identities of existing resources are removed last.
func parameterDropRank(property string) int {
	order := []string{"", "InstanceType", "MaxSize", "MinSize", "ImageId"}
	if i := slices.Index(order, property); i >= 0 {
		return i
	}

	return len(order)
}
