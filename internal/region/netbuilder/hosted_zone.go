// SPDX-License-Identifier: Apache-2.0

package netbuilder

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// HostedZone is a hosted zone: a public one has no VPCs.
type HostedZone struct {
	Name    string
	VPCs    []string
	Records []DNSRecord
}

// DNSRecord gives a name addresses, or those of another name.
type DNSRecord struct {
	Name        string
	Addrs       []netip.Addr
	AliasTarget string
}

// addZoneNames adds what hosted zones say to a VPC's names. A private zone of the VPC hides all public ones above and below it.
func (b *builder) addZoneNames(v *netspec.VPC) {
	var private []string
	for _, z := range b.in.HostedZones {
		if slices.Contains(z.VPCs, v.ID) {
			private = append(private, z.Name)
		}
	}

	for _, z := range b.in.HostedZones {
		if len(z.VPCs) > 0 && !slices.Contains(z.VPCs, v.ID) {
			continue
		}

		for _, r := range z.Records {
			hidden := len(z.VPCs) == 0 &&
				slices.ContainsFunc(
					private,
					func(p string) bool { return r.Name == p || strings.HasSuffix(r.Name, "."+p) },
				)
			if addrs := b.recordAddrs(v, r); !hidden && len(addrs) > 0 {
				v.DNSNames[r.Name] = append(slices.Clone(v.DNSNames[r.Name]), addrs...)
			}
		}
	}
}

// recordAddrs are the addresses that a record leads to from within a VPC. A load balancer of another VPC is not reached.
func (b *builder) recordAddrs(v *netspec.VPC, r DNSRecord) []netip.Addr {
	if r.AliasTarget == "" {
		return r.Addrs
	}

	for _, l := range b.in.LoadBalancers {
		if l.VPC == v.ID && strings.TrimSuffix(l.DNSName, ".") == r.AliasTarget {
			return slices.SortedFunc(maps.Values(l.Addrs), netip.Addr.Compare)
		}
	}

	return nil
}
