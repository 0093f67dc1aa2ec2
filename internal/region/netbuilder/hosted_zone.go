// SPDX-License-Identifier: Apache-2.0

package netbuilder

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// HostedZone is a Route 53 hosted zone.
type HostedZone struct {
	// Name of the zone without a trailing dot.
	Name string
	// VPCs of a private zone; empty for a public zone.
	VPCs []string
	// Records of the zone.
	Records []DNSRecord
}

// DNSRecord maps a name to addresses, to a load balancer or to services.
type DNSRecord struct {
	// Name of the record without a trailing dot.
	Name string
	// Addrs of an A record.
	Addrs []netip.Addr
	// AliasTarget is the DNS name of a load balancer; empty for an A record.
	AliasTarget string
	// Services of an SRV record.
	Services []netspec.DNSService
	// TTL is how long resolvers may cache the record, in seconds; 0 for an alias.
	TTL uint32
}

// addZoneNames adds the records of hosted zones to a VPC's DNS names. A private zone hides the
// names below it in public zones.
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
			if !hidden {
				b.addRecord(v, r)
			}
		}
	}
}

// addRecord adds a record of a hosted zone to a VPC's resolver.
func (b *builder) addRecord(v *netspec.VPC, r DNSRecord) {
	if r.AliasTarget != "" {
		b.addAlias(v, r)
	} else if len(r.Addrs) > 0 {
		v.DNSNames[r.Name] = append(slices.Clone(v.DNSNames[r.Name]), r.Addrs...)
	}

	if len(r.Services) > 0 {
		v.DNSServices[r.Name] = append(slices.Clone(v.DNSServices[r.Name]), r.Services...)
	}

	if r.TTL > 0 {
		v.DNSTimes[r.Name] = r.TTL
	}
}

// addAlias adds a record that is an alias of a load balancer in the VPC. Those of other VPCs are not resolved.
func (b *builder) addAlias(v *netspec.VPC, r DNSRecord) {
	for _, l := range b.in.LoadBalancers {
		if l.VPC == v.ID && strings.TrimSuffix(l.DNSName, ".") == r.AliasTarget {
			v.BalancerNames[r.Name] = append(v.BalancerNames[r.Name], l.ARN)
		}
	}
}
