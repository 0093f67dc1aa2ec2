// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/fabric"
)

// Zone is a hosted zone: a public one has no VPCs.
type Zone struct {
	Name    string
	VPCs    []string
	Records []Record
}

// Record gives a name addresses, or those of another name.
type Record struct {
	Name  string
	Addrs []netip.Addr
	Alias string
}

// zones adds what hosted zones say to a VPC's names. A private zone of the VPC hides all public ones above and below it.
func (b *builder) zones(v *fabric.VPC) {
	var private []string
	for _, z := range b.in.Zones {
		if slices.Contains(z.VPCs, v.ID) {
			private = append(private, z.Name)
		}
	}
	for _, z := range b.in.Zones {
		if len(z.VPCs) > 0 && !slices.Contains(z.VPCs, v.ID) {
			continue
		}
		for _, r := range z.Records {
			hidden := len(z.VPCs) == 0 && slices.ContainsFunc(private, func(p string) bool { return r.Name == p || strings.HasSuffix(r.Name, "."+p) })
			if addrs := b.addrs(v, r); !hidden && len(addrs) > 0 {
				v.Names[r.Name] = append(slices.Clone(v.Names[r.Name]), addrs...)
			}
		}
	}
}

// addrs are the addresses that a record leads to from within a VPC. A load balancer of another VPC is not reached.
func (b *builder) addrs(v *fabric.VPC, r Record) []netip.Addr {
	if r.Alias == "" {
		return r.Addrs
	}
	for _, l := range b.in.Balancers {
		if l.VPC == v.ID && strings.TrimSuffix(l.Name, ".") == r.Alias {
			return slices.SortedFunc(maps.Values(l.Addrs), netip.Addr.Compare)
		}
	}
	return nil
}
