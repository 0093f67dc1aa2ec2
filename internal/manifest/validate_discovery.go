// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// internalZonesOfAWS are the names of clusters whose zone would hide names that the resolver of
// every VPC answers: those of instances end with ec2.internal in us-east-1 and with
// REGION.compute.internal elsewhere.
func internalZonesOfAWS() []string { return []string{"compute", "ec2"} }

// defaultDiscoveryEvents lets EventBridge trigger the function that keeps the records of etcd's
// members.
func defaultDiscoveryEvents(s *Set) {
	etcd := &s.Cluster.Spec.Etcd
	if etcd.Discovery == v1alpha1.EtcdDiscoveryDNS && len(etcd.DiscoveryEvents) == 0 {
		etcd.DiscoveryEvents = []string{v1alpha1.EtcdEventsEventBridge}
	}
}

// checkDiscoveryEvents checks what triggers the function that keeps the records. Other clusters
// have no function.
func (v validator) checkDiscoveryEvents(e v1alpha1.Etcd) {
	const at = "spec.etcd.discoveryEvents"
	if len(e.DiscoveryEvents) > 0 && e.Discovery == v1alpha1.EtcdDiscoveryTags {
		v.errorf(at, strings.Join(e.DiscoveryEvents, ", "), "remove it, or set spec.etcd.discovery to DNS",
			"is only for discovery by DNS, whose function the events trigger")

		return
	}

	seen := map[string]int{}
	for i, name := range e.DiscoveryEvents {
		path := fmt.Sprintf("%s[%d]", at, i)
		v.checkChoice(path, name, v1alpha1.EtcdEventsEventBridge, v1alpha1.EtcdEventsSNS)
		v.checkUnique(path, name, seen, i, "duplicates discoveryEvents[%d]")
	}
}

// checkDiscovery checks how the members of etcd find each other. The zone of discovery by DNS is
// Slipway's own: no two private zones of a VPC can have one name.
func checkDiscovery(v validator, c v1alpha1.Cluster) {
	const at = "spec.etcd.discovery"
	discovery := c.Spec.Etcd.Discovery
	v.checkChoice(at, discovery, v1alpha1.EtcdDiscoveryDNS, v1alpha1.EtcdDiscoveryTags)
	v.checkDiscoveryEvents(c.Spec.Etcd)
	if discovery != v1alpha1.EtcdDiscoveryDNS {
		return
	}

	zone := v1alpha1.EtcdZone(c.Metadata.Name)
	if slices.Contains(internalZonesOfAWS(), c.Metadata.Name) {
		v.errorf(at, discovery, "use Tags, or another name for the cluster",
			"needs a private zone %s, which would hide names of AWS", zone)
	}

	if HasDNS(c.Spec) && c.Spec.DNSZone == zone {
		v.errorf("spec.dnsZone", c.Spec.DNSZone, "choose another zone, such as k8s."+zone+", or set "+at+" to Tags",
			"is the zone in which etcd's members find each other: %s", whyNoSecondZone(c.Spec.Topology.DNS.Type))
	}
}

// whyNoSecondZone says why a zone of a type cannot have the name of the private zone of etcd's
// members.
func whyNoSecondZone(kind string) string {
	if kind == DNSPublic {
		return "in the VPC, that private zone would hide the public one of its name"
	}

	return "a VPC has one private zone of a name"
}
