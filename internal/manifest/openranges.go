// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// OpenRanges returns those of CIDR ranges that contain the whole internet, of IPv4 or IPv6: each range that does so itself, or else all
// ranges of the family in one text, if they do so together. Ranges that are not valid do not count.
func OpenRanges(ranges []string) []string {
	var out []string
	for _, bits := range []int{32, 128} {
		isOfFamily := func(cidr string) bool {
			p, err := netip.ParsePrefix(cidr)
			return err == nil && p.Addr().BitLen() == bits
		}
		family := slices.DeleteFunc(slices.Clone(ranges), func(cidr string) bool { return !isOfFamily(cidr) })
		whole := slices.DeleteFunc(slices.Clone(family), func(cidr string) bool { return !strings.HasSuffix(cidr, "/0") })

		switch {
		case len(whole) > 0:
			out = append(out, slices.Compact(whole)...)
		case containEverything(family):
			out = append(out, strings.Join(family, ", "))
		}
	}

	return out
}

// containEverything reports whether ranges of one family contain all addresses together: two halves of a range are that range.
func containEverything(ranges []string) bool {
	known := map[netip.Prefix]bool{}
	longest := 0
	for _, cidr := range ranges {
		p := netip.MustParsePrefix(cidr).Masked()
		known[p] = true
		longest = max(longest, p.Bits())
	}

	for bits := longest; bits > 0; bits-- {
		halves := map[netip.Prefix]int{}
		for p := range known {
			if p.Bits() == bits {
				halves[netip.PrefixFrom(p.Addr(), bits-1).Masked()]++
			}
		}

		for p, count := range halves {
			if count == 2 {
				known[p] = true
			}
		}
	}

	return slices.ContainsFunc(slices.Collect(maps.Keys(known)), func(p netip.Prefix) bool { return p.Bits() == 0 })
}
