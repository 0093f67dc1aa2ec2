// SPDX-License-Identifier: Apache-2.0

package render

import (
	"maps"
	"slices"
)

// LimitTo returns at most limit parameters: those of whole properties are left out until it holds, what is least often set
// first. The same property is then a parameter of every group or of none.
func (p Parameters) LimitTo(limit int) Parameters {
	out := Parameters{items: slices.Clone(p.items), nameByProperty: maps.Clone(p.nameByProperty)}
	for len(out.items) > limit {
		least := slices.MaxFunc(
			out.items,
			func(a, b Parameter) int { return parameterDropRank(a.Property) - parameterDropRank(b.Property) },
		).Property

		out.items = slices.DeleteFunc(out.items, func(one Parameter) bool { return one.Property == least })
		left := map[string]bool{}
		for _, one := range out.items {
			left[one.Name] = true
		}

		maps.DeleteFunc(out.nameByProperty, func(_, name string) bool { return !left[name] })
	}

	return out
}

// parameterDropRank is higher for a property that is less often set in a console: what kind of machine there is and how many are
// set most. What exists comes last of all.
func parameterDropRank(property string) int {
	order := []string{"", "InstanceType", "MaxSize", "MinSize", "ImageId"}
	if i := slices.Index(order, property); i >= 0 {
		return i
	}

	return len(order)
}
