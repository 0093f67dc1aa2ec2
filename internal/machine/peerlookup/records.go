// SPDX-License-Identifier: Apache-2.0

// Package peerlookup finds the addresses of the members of a cluster's etcd in the DNS records of the cluster's zone.
//
// [Resolver] reads the records. [Memory] decides which addresses a machine uses: records can be missing, or be those of a
// machine that was replaced, and then the addresses that EC2 lists are used. Addresses are hints: a member proves with its
// certificate which one it is, and nothing here says who is a member of etcd. The package changes nothing.
package peerlookup

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// Records are what the cluster's zone says of the members.
type Records struct {
	// Addresses by slot. A slot that is listed without an address has none here.
	Addresses map[string]string
	// Peers and Clients are the slots that the service records for members and for clients list, sorted.
	Peers   []string
	Clients []string
}

// Slots returns all slots that are listed, sorted.
func (r Records) Slots() []string {
	all := slices.Concat(r.Peers, r.Clients)
	slices.Sort(all)

	return slices.Compact(all)
}

// slotNamed returns the slot that a cluster calls by a host name. ok is false for another name.
func slotNamed(cluster, host string) (slot string, ok bool) {
	host = strings.TrimSuffix(dns.CanonicalName(host), ".")
	for _, s := range node.PossibleSlots(cluster) {
		if s.Host == host {
			return s.Name, true
		}
	}

	return "", false
}

// readSlots returns the slots that service records list with the expected port, sorted. What is of another name or type is
// left out: a zone may have other records.
func readSlots(cluster string, answer []dns.RR, port uint16) []string {
	seen := map[string]bool{}
	for _, rr := range answer {
		service, ok := rr.(*dns.SRV)
		if !ok || service.Port != port {
			continue
		}

		if slot, known := slotNamed(cluster, service.Target); known {
			seen[slot] = true
		}
	}

	return slices.Sorted(maps.Keys(seen))
}

// readAddress returns the lowest address of an answer that a machine can have; empty if there is none.
func readAddress(answer []dns.RR) string {
	var found []netip.Addr
	for _, rr := range answer {
		record, ok := rr.(*dns.A)
		if !ok {
			continue
		}

		if address, valid := netip.AddrFromSlice(record.A.To4()); valid && address.IsGlobalUnicast() {
			found = append(found, address)
		}
	}

	if len(found) == 0 {
		return ""
	}

	return slices.MinFunc(found, netip.Addr.Compare).String()
}
