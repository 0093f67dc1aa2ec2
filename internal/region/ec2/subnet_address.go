// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/binary"
	"net/netip"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// usedAddresses returns the addresses of a subnet that are in use.
func (st *serviceState) usedAddresses(subnet string) map[netip.Addr]bool {
	used := map[netip.Addr]bool{}
	for _, n := range st.Interfaces {
		if str(n.SubnetId) != subnet {
			continue
		}

		for _, ip := range privateAddresses(n) {
			used[netip.MustParseAddr(ip)] = true
		}

		for _, prefix := range delegatedPrefixes(n) {
			for _, a := range addressesOf(netip.MustParsePrefix(prefix)) {
				used[a] = true
			}
		}
	}

	return used
}

// pickAddress returns a free address of a subnet: the wanted one or, if want is empty, the next one after the
// last that was given out, so that a replaced machine gets another address, as in AWS. The first four
// addresses and the last are reserved.
func (st *serviceState) pickAddress(n *sdk.Subnet, want string) (netip.Addr, error) {
	id := str(n.SubnetId)
	cidr := netip.MustParsePrefix(str(n.CidrBlock))
	used := st.usedAddresses(id)
	base := binary.BigEndian.Uint32(cidr.Addr().AsSlice())
	size := uint32(1) << (32 - cidr.Bits())
	if want != "" {
		a, err := netip.ParseAddr(want)
		if err != nil || !cidr.Contains(a) {
			return a, newErrorf(
				codeInvalidParameterValue,
				"Address %s does not fall within the subnet's address range",
				want,
			)
		}

		if slices.Contains(reservedAddresses(cidr), a) {
			return a, newErrorf(
				codeInvalidParameterValue,
				"Address %s is in subnet's reserved address range",
				want,
			)
		}

		if used[a] {
			return a, newErrorf(codeInvalidIPAddressInUse, "Address %s is in use.", want)
		}

		return a, nil
	}

	for i := range size - 5 {
		off := 4 + (st.LastIP[id]+i)%(size-5)
		if a := ipv4Addr(base + off); !used[a] {
			st.LastIP[id] = off - 4 + 1
			return a, nil
		}
	}

	return netip.Addr{}, newErrorf(
		codeInsufficientFreeAddressesInSubnet,
		"There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.",
		id,
	)
}

// ipv4Addr returns the IPv4 address with a number.
func ipv4Addr(number uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], number)

	return netip.AddrFrom4(b)
}

// reservedAddresses returns the addresses of a subnet that nobody can have: the first four and the last.
func reservedAddresses(cidr netip.Prefix) []netip.Addr {
	base := binary.BigEndian.Uint32(cidr.Addr().AsSlice())
	last := base + uint32(1)<<(32-cidr.Bits()) - 1

	return []netip.Addr{ipv4Addr(base), ipv4Addr(base + 1), ipv4Addr(base + 2), ipv4Addr(base + 3), ipv4Addr(last)}
}

// addressesOf returns all addresses of a prefix.
func addressesOf(p netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for a := p.Addr(); p.Contains(a); a = a.Next() {
		out = append(out, a)
	}

	return out
}

// nextPrefix returns the prefix of the same length after p.
func nextPrefix(p netip.Prefix) netip.Prefix {
	base := binary.BigEndian.Uint32(p.Addr().AsSlice())

	return netip.PrefixFrom(ipv4Addr(base+uint32(1)<<(32-p.Bits())), p.Bits())
}
