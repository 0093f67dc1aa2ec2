// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/binary"
	"net/netip"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// usedAddresses returns the addresses of a subnet that are in use.
func (st *serviceState) usedAddresses(subnet string) map[netip.Addr]bool {
	used := map[netip.Addr]bool{}
	for _, n := range st.Interfaces {
		if str(n.SubnetId) == subnet {
			used[netip.MustParseAddr(str(n.PrivateIpAddress))] = true
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
			return a, wire.Errorf(
				"InvalidParameterValue",
				"Address %s does not fall within the subnet's address range",
				want,
			)
		}

		if off := binary.BigEndian.Uint32(a.AsSlice()) - base; off < 4 || off == size-1 {
			return a, wire.Errorf(
				"InvalidParameterValue",
				"Address %s is in subnet's reserved address range",
				want,
			)
		}

		if used[a] {
			return a, wire.Errorf("InvalidIPAddress.InUse", "Address %s is in use.", want)
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

	return netip.Addr{}, wire.Errorf(
		"InsufficientFreeAddressesInSubnet",
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
