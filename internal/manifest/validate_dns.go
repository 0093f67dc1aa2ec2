// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Where the API's DNS name is known, as spec.topology.dns.type says it; unset is None.
const (
	DNSNone    = "None"
	DNSPrivate = "Private"
	DNSPublic  = "Public"
)

// HasDNS says whether the API has a name in a zone of Route 53.
func HasDNS(c v1alpha1.ClusterSpec) bool {
	return c.Topology.DNS.Type == DNSPrivate || c.Topology.DNS.Type == DNSPublic
}

// IsZoneID says whether a dnsZone is the id of an existing zone, and no name of one to be made, which has dots.
func IsZoneID(zone string) bool { return regexp.MustCompile(`^[0-9A-Z]{8,32}$`).MatchString(zone) }

// defaultPublicName names the API within the zone that is made.
func defaultPublicName(s *Set) {
	c := &s.Cluster.Spec
	if HasDNS(*c) && c.API.PublicName == "" && c.DNSZone != "" && !IsZoneID(c.DNSZone) {
		c.API.PublicName = "api." + s.Cluster.Metadata.Name + "." + c.DNSZone
	}
}

// checkDNS checks the zone and the API's name in it.
func (v validator) checkDNS(c v1alpha1.ClusterSpec) {
	zone := c.DNSZone
	name := c.API.PublicName
	if c.Topology.DNS.Type != "" {
		v.checkChoice("spec.topology.dns.type", c.Topology.DNS.Type, DNSNone, DNSPrivate, DNSPublic)
	}

	if !HasDNS(c) {
		v.rejectDNSFields(zone, name)
		return
	}

	if zone == "" {
		v.errorf(
			"spec.dnsZone",
			zone,
			"write it as k8s.example.com, or as the id of an existing zone",
			"must not be empty",
		)

		return
	}

	made := !IsZoneID(zone)
	if made {
		v.checkNewZone(zone, c.Networking.DNSDomain)
	} else if c.Topology.DNS.Type == DNSPrivate && c.Networking.NetworkID == "" {
		v.errorf("spec.dnsZone", zone, "name a zone to be made, or give networkID", "an existing private zone is known in existing VPCs only")
	}

	switch {
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		v.errorf("spec.api.publicName", name, "write it as api.k8s.example.com", "is not a DNS name")
	case made && !isInDomain(name, zone):
		v.errorf("spec.api.publicName", name, "write it as api."+zone, "is not in the zone %s", zone)
	}
}

func (v validator) rejectDNSFields(zone, name string) {
	const hint = "set spec.topology.dns.type to Private or Public, or leave it out"
	if zone != "" {
		v.errorf("spec.dnsZone", zone, hint, "has no effect without DNS")
	}

	if name != "" {
		v.errorf("spec.api.publicName", name, hint, "has no effect without DNS")
	}
}

// checkNewZone checks the name of a zone that is to be made.
func (v validator) checkNewZone(zone, services string) {
	switch {
	case len(validation.IsDNS1123Subdomain(zone)) > 0 || !strings.Contains(zone, "."):
		v.errorf(
			"spec.dnsZone",
			zone,
			"write it as k8s.example.com, or as the id of an existing zone",
			"is neither a domain of two labels or more nor an id",
		)

	case isInDomain(zone, services) || isInDomain(services, zone):
		v.errorf("spec.dnsZone", zone, "choose another zone", "overlaps %s, the domain of Services", services)
	}
}

// isInDomain says whether a name is a domain or lies in it.
func isInDomain(name, domain string) bool {
	return name == domain || strings.HasSuffix(name, "."+domain)
}
