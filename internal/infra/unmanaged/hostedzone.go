// SPDX-License-Identifier: Apache-2.0

package unmanaged

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// HostedZone is what Route 53 says about an existing hosted zone.
type HostedZone struct {
	// Name without a dot at its end; empty if there is no such zone.
	Name string
	// Private says that it is known in VPCs only.
	Private bool
	VPCs    []string
	// RecordTaken says that the API's name has a record of somebody else.
	RecordTaken bool
}

// checkHostedZone checks the zone that the manifest names by its id.
func (k *checker) checkHostedZone(c v1alpha1.ClusterSpec) {
	if !manifest.HasDNS(c) || !manifest.IsZoneID(c.DNSZone) {
		return
	}

	z := k.facts.HostedZone
	name := c.API.PublicName
	if z.Name == "" {
		k.addErrorf(
			"spec.dnsZone",
			c.DNSZone,
			"see aws route53 list-hosted-zones",
			"is no hosted zone of this account",
		)

		return
	}

	k.checkZoneVisibility(c)
	if name != z.Name && !strings.HasSuffix(name, "."+z.Name) {
		k.addErrorf("spec.api.publicName", name, "write it as api."+z.Name, "is not in %s", z.Name)
	}

	if z.RecordTaken {
		k.addErrorf(
			"spec.api.publicName",
			name,
			"choose another name, or delete that record",
			"has a record in %s that is not this cluster's",
			z.Name,
		)
	}
}

// checkZoneVisibility checks that the zone is known where the manifest says.
func (k *checker) checkZoneVisibility(c v1alpha1.ClusterSpec) {
	z := k.facts.HostedZone
	private := c.Topology.DNS.Type == manifest.DNSPrivate
	switch {
	case z.Private && !private:
		k.addErrorf(
			"spec.topology.dns.type",
			c.Topology.DNS.Type,
			"write Private, or use a public zone",
			"is not what %s is: %s is private",
			c.DNSZone,
			z.Name,
		)

	case !z.Private && private:
		k.addErrorf(
			"spec.topology.dns.type",
			c.Topology.DNS.Type,
			"write Public, or use a private zone",
			"is not what %s is: %s is public",
			c.DNSZone,
			z.Name,
		)

	case private && !slices.Contains(z.VPCs, c.Networking.NetworkID):
		k.addErrorf(
			"spec.dnsZone",
			c.DNSZone,
			"associate the zone with that VPC",
			"is not known in %s",
			c.Networking.NetworkID,
		)
	}
}
