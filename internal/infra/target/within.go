// SPDX-License-Identifier: Apache-2.0

package target

import (
	"maps"
	"slices"
)

// Within returns at most limit parameters: those of whole properties are left out until it holds, what is least often set
// first. The same property is then a parameter of every group or of none.
func (p Parameters) Within(limit int) Parameters {
	out := Parameters{list: slices.Clone(p.list), at: maps.Clone(p.at)}
	for len(out.list) > limit {
		least := slices.MaxFunc(out.list, func(a, b Parameter) int { return dispensable(a.Property) - dispensable(b.Property) }).Property
		out.list = slices.DeleteFunc(out.list, func(one Parameter) bool { return one.Property == least })
		left := map[string]bool{}
		for _, one := range out.list {
			left[one.Name] = true
		}
		maps.DeleteFunc(out.at, func(_, name string) bool { return !left[name] })
	}
	return out
}

// dispensable is higher for a property that is less often set in a console: what kind of machine there is and how many are
// set most. What exists comes last of all.
func dispensable(property string) int {
	order := []string{"", "InstanceType", "MaxSize", "MinSize", "ImageId"}
	if i := slices.Index(order, property); i >= 0 {
		return i
	}
	return len(order)
}
