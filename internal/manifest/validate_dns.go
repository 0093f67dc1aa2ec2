// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// The values of spec.topology.dns.type, which selects where the API's DNS name resolves. Unset
// means None.
const (
	DNSNone    = "None"
	DNSPrivate = "Private"
	DNSPublic  = "Public"
)

// HasDNS reports whether the API has a DNS name in a Route 53 zone.
func HasDNS(c v1alpha1.ClusterSpec) bool {
	return c.Topology.DNS.Type == DNSPrivate || c.Topology.DNS.Type == DNSPublic
}

// IsZoneID reports whether a dnsZone is the ID of an existing hosted zone. Otherwise it is the name
// of a zone to create, which contains dots.
func IsZoneID(zone string) bool { return regexp.MustCompile(`^[0-9A-Z]{8,32}$`).MatchString(zone) }

// defaultPublicName sets the API's DNS name in a zone that Slipway creates.
func defaultPublicName(s *Set) {
	c := &s.Cluster.Spec
	if HasDNS(*c) && c.API.PublicName == "" && c.DNSZone != "" && !IsZoneID(c.DNSZone) {
		c.API.PublicName = "api." + s.Cluster.Metadata.Name + "." + c.DNSZone
	}
}

// checkDNS checks the hosted zone and the API's DNS name in it.
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
			"write it as k8s.example.com, or as the ID of an existing zone",
			"must not be empty",
		)

		return
	}

	isNew := !IsZoneID(zone)
	if isNew {
		v.checkNewZone(zone, c.Networking.DNSDomain)
	} else if c.Topology.DNS.Type == DNSPrivate && c.Networking.NetworkID == "" {
		v.errorf("spec.dnsZone", zone, "use the name of a zone to create, or set networkID", "is an existing private zone, which resolves in existing VPCs only")
	}

	switch {
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		v.errorf("spec.api.publicName", name, "write it as api.k8s.example.com", "is not a DNS name")
	case isNew && !isInDomain(name, zone):
		v.errorf("spec.api.publicName", name, "write it as api."+zone, "is not in the zone %s", zone)
	}
}

// rejectDNSFields reports the DNS fields that are set although the API has no DNS name.
func (v validator) rejectDNSFields(zone, name string) {
	const hint = "set spec.topology.dns.type to Private or Public, or leave it out"
	if zone != "" {
		v.errorf("spec.dnsZone", zone, hint, "has no effect without DNS")
	}

	if name != "" {
		v.errorf("spec.api.publicName", name, hint, "has no effect without DNS")
	}
}

// checkNewZone checks the name of a hosted zone to create. It must not overlap services, the DNS
// domain of Services.
func (v validator) checkNewZone(zone, services string) {
	switch {
	case len(validation.IsDNS1123Subdomain(zone)) > 0 || !strings.Contains(zone, "."):
		v.errorf(
			"spec.dnsZone",
			zone,
			"write it as k8s.example.com, or as the ID of an existing zone",
			"is neither a domain of at least two labels nor a zone ID",
		)

	case isInDomain(zone, services) || isInDomain(services, zone):
		v.errorf("spec.dnsZone", zone, "choose another zone", "overlaps %s, the domain of Services", services)
	}
}

// isInDomain reports whether name is domain or a name below it.
func isInDomain(name, domain string) bool {
	return name == domain || strings.HasSuffix(name, "."+domain)
}
