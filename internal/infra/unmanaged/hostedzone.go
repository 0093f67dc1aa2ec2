// SPDX-License-Identifier: Apache-2.0

package unmanaged

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// HostedZone is what Route 53 reports about an existing hosted zone.
type HostedZone struct {
	// Name without a trailing dot; empty if the zone does not exist.
	Name string
	// Private is true if the zone resolves only in VPCs.
	Private bool
	// VPCs lists the ids of the VPCs of a private zone.
	VPCs []string
	// RecordTaken is true if the API's name has a record that does not belong to this cluster.
	RecordTaken bool
}

// checkHostedZone checks the hosted zone that the manifest names by its id.
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
			"see: aws route53 list-hosted-zones",
			"is not a hosted zone of this account",
		)

		return
	}

	k.checkZoneVisibility(c)
	if name != z.Name && !strings.HasSuffix(name, "."+z.Name) {
		k.addErrorf("spec.api.publicName", name, "set it to api."+z.Name, "is not in %s", z.Name)
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

// checkZoneVisibility checks that the zone is private or public as in the manifest, and that the VPC can
// resolve it.
func (k *checker) checkZoneVisibility(c v1alpha1.ClusterSpec) {
	z := k.facts.HostedZone
	private := c.Topology.DNS.Type == manifest.DNSPrivate
	switch {
	case z.Private && !private:
		k.addErrorf(
			"spec.topology.dns.type",
			c.Topology.DNS.Type,
			"set type to Private, or use a public zone",
			"does not match %s: the zone %s is private",
			c.DNSZone,
			z.Name,
		)

	case !z.Private && private:
		k.addErrorf(
			"spec.topology.dns.type",
			c.Topology.DNS.Type,
			"set type to Public, or use a private zone",
			"does not match %s: the zone %s is public",
			c.DNSZone,
			z.Name,
		)

	case private && !slices.Contains(z.VPCs, c.Networking.NetworkID):
		k.addErrorf(
			"spec.dnsZone",
			c.DNSZone,
			"associate the zone with that VPC",
			"is not associated with %s",
			c.Networking.NetworkID,
		)
	}
}
