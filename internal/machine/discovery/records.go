// SPDX-License-Identifier: Apache-2.0

// Package discovery keeps the DNS records by which the members of a cluster's etcd find each other: the addresses of
// their constant names, and the service records that list them. [PlanChanges] is pure: from the machines of the control
// plane and the records of the zone it returns the changes of the zone. [Function] runs it as an AWS Lambda function.
//
// Each run compares everything that it owns with everything that runs, whatever the event was, so that a lost event is
// made up for by the next one. The package changes only the names that it owns, and never removes all of them: that is
// part of the deletion of the zone.
package discovery

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// The ports of etcd.
const (
	peerPort   = 2380
	clientPort = 2379
)

// The types of records.
const (
	typeAddress = "A"
	typeService = "SRV"
)

// How long resolvers may cache a record, in seconds. A replaced machine has another address, and its peers wait for it.
const (
	addressTTL = 10
	serviceTTL = 60
)

// Record is a record set without a routing policy.
type Record struct {
	// Name is in lower case and has no trailing dot.
	Name string
	// Type is that of DNS, such as A.
	Type string
	// TTL is in seconds.
	TTL int64
	// Values are sorted.
	Values []string
}

// Change replaces or deletes a record.
type Change struct {
	// Delete is set if the record is deleted. Otherwise it is created, or replaces the one of its name and type.
	Delete bool
	// Record is the record after the change, or the one that is deleted.
	Record Record
}

// PlanChanges returns the changes that make the records of a cluster those of its machines, sorted by name and type. It
// returns none if no machine runs: then nothing is known that would be better than the last records. A slot without a
// machine has no record while others have one, so that nobody waits for an address that nobody has.
func PlanChanges(cluster string, machines []Machine, present []Record) []Change {
	desired := desiredRecords(cluster, slotAddresses(machines))
	if len(desired) == 0 {
		return nil
	}

	var out []Change
	for _, r := range desired {
		i := slices.IndexFunc(present, r.isSameSet)
		if i < 0 || !r.equals(present[i]) {
			out = append(out, Change{Record: r})
		}
	}

	for _, r := range present {
		if owns(cluster, r) && !slices.ContainsFunc(desired, r.isSameSet) {
			out = append(out, Change{Delete: true, Record: r})
		}
	}

	slices.SortFunc(out, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Record.Name, b.Record.Name), cmp.Compare(a.Record.Type, b.Record.Type))
	})

	return out
}

// isSameSet reports whether two records have the same name and type.
func (r Record) isSameSet(other Record) bool { return r.Name == other.Name && r.Type == other.Type }

func (r Record) equals(other Record) bool {
	return r.isSameSet(other) && r.TTL == other.TTL && slices.Equal(r.Values, other.Values)
}

// owns reports whether a record has a name and a type that only this package sets.
func owns(cluster string, r Record) bool {
	if r.Type == typeService {
		return r.Name == node.PeerService(cluster) || r.Name == node.ClientService(cluster)
	}

	return r.Type == typeAddress && slices.ContainsFunc(
		node.PossibleSlots(cluster),
		func(s node.Slot) bool { return s.Host == r.Name },
	)
}

// desiredRecords returns the records for the addresses of slots; none if there is no address.
func desiredRecords(cluster string, addresses map[string]string) []Record {
	if len(addresses) == 0 {
		return nil
	}

	peers := Record{Name: node.PeerService(cluster), Type: typeService, TTL: serviceTTL}
	clients := Record{Name: node.ClientService(cluster), Type: typeService, TTL: serviceTTL}
	var out []Record

	for _, slot := range slices.Sorted(maps.Keys(addresses)) {
		host := node.NewSlot(cluster, slot).Host
		out = append(out, Record{
			Name:   host,
			Type:   typeAddress,
			TTL:    addressTTL,
			Values: []string{addresses[slot]},
		})

		peers.Values = append(peers.Values, serviceValue(peerPort, host))
		clients.Values = append(clients.Values, serviceValue(clientPort, host))
	}

	return append(out, peers, clients)
}

// serviceValue returns the value of a service record: priority, weight, port and name. All members are equal.
func serviceValue(port int, host string) string {
	return strings.Join([]string{"0", "0", strconv.Itoa(port), host + "."}, " ")
}
