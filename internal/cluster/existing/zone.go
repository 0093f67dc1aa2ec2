// SPDX-License-Identifier: Apache-2.0

package existing

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Zone is what Route 53 says about an existing hosted zone.
type Zone struct {
	// Name without a dot at its end; empty if there is no such zone.
	Name string
	// Private says that it is known in VPCs only.
	Private bool
	VPCs    []string
	// Taken says that the API's name has a record of somebody else.
	Taken bool
}

// zone checks the zone that the manifest names by its id.
func (k *checker) zone(c v1alpha1.ClusterSpec) {
	if !manifest.HasDNS(c) || !manifest.IsZoneID(c.DNSZone) {
		return
	}
	z, name := k.facts.Zone, c.API.PublicName
	if z.Name == "" {
		k.errorf("spec.dnsZone", c.DNSZone, "see aws route53 list-hosted-zones", "is no hosted zone of this account")
		return
	}
	k.known(c)
	if name != z.Name && !strings.HasSuffix(name, "."+z.Name) {
		k.errorf("spec.api.publicName", name, "write it as api."+z.Name, "is not in %s", z.Name)
	}
	if z.Taken {
		k.errorf("spec.api.publicName", name, "choose another name, or delete that record", "has a record in %s that is not this cluster's", z.Name)
	}
}

// known checks that the zone is known where the manifest says.
func (k *checker) known(c v1alpha1.ClusterSpec) {
	z, private := k.facts.Zone, c.Topology.DNS.Type == manifest.DNSPrivate
	switch {
	case z.Private && !private:
		k.errorf("spec.topology.dns.type", c.Topology.DNS.Type, "write Private, or use a public zone", "is not what %s is: %s is private", c.DNSZone, z.Name)
	case !z.Private && private:
		k.errorf("spec.topology.dns.type", c.Topology.DNS.Type, "write Public, or use a private zone", "is not what %s is: %s is public", c.DNSZone, z.Name)
	case private && !slices.Contains(z.VPCs, c.Networking.NetworkID):
		k.errorf("spec.dnsZone", c.DNSZone, "associate the zone with that VPC", "is not known in %s", c.Networking.NetworkID)
	}
}
