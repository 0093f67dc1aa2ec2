// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// assignSubnetRanges sets the CIDR of every new subnet without one to the lowest free block of the
// network.
func assignSubnetRanges(s *Set) {
	network, err := netip.ParsePrefix(s.Cluster.Spec.Networking.NetworkCIDR)
	if err != nil || !network.Addr().Is4() {
		return // Validate reports it
	}

	subnets := s.Cluster.Spec.Networking.Subnets
	var used []netip.Prefix

	for _, sub := range subnets {
		if p, err := netip.ParsePrefix(sub.CIDR); err == nil {
			used = append(used, p)
		}
	}

	for i := range subnets {
		if subnets[i].CIDR != "" || subnets[i].ID != "" {
			continue
		}

		bits := network.Bits() + privateSubnetBits
		if t := subnets[i].Type; t == v1alpha1.SubnetUtility ||
			t == v1alpha1.SubnetPublic && hasPrivate(subnets) {
			bits = network.Bits() + publicSubnetBits
		}

		if p, ok := findFreeBlock(network, min(bits, maxSubnetPrefix), used); ok {
			subnets[i].CIDR = p.String()
			used = append(used, p)
		}
	}
}

// findFreeBlock returns the lowest block of the network that has a prefix of the given length and
// overlaps none of used. It returns false if there is none.
func findFreeBlock(network netip.Prefix, bits int, used []netip.Prefix) (netip.Prefix, bool) {
	block := netip.PrefixFrom(network.Masked().Addr(), bits)
	for bits >= network.Bits() && network.Contains(block.Addr()) {
		if !slices.ContainsFunc(used, block.Overlaps) {
			return block, true
		}

		next, ok := nextBlock(block)
		if !ok {
			break
		}

		block = next
	}

	return netip.Prefix{}, false
}

// nextBlock returns the next block of the same size. It returns false after the last IPv4 address.
func nextBlock(p netip.Prefix) (netip.Prefix, bool) {
	addr := p.Addr().As4()
	n := binary.BigEndian.Uint32(addr[:])
	next := n + 1<<(32-p.Bits())
	binary.BigEndian.PutUint32(addr[:], next)

	return netip.PrefixFrom(netip.AddrFrom4(addr), p.Bits()), next > n
}
