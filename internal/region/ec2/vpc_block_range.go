// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"net/netip"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// privateRanges returns the ranges of RFC 1918.
func privateRanges() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"),
	}
}

// checkBlockRange refuses a block that EC2 does not take in addition to the primary one of a VPC; see "IPv4 CIDR block association
// restrictions" in the VPC user guide. A VPC keeps to the private range of its primary block, or to none.
func checkBlockRange(v *sdk.Vpc, cidr netip.Prefix) error {
	primary := netip.MustParsePrefix(str(v.CidrBlock))
	private := privateRanges()
	home := slices.IndexFunc(private, primary.Overlaps)
	range1918 := slices.IndexFunc(private, cidr.Overlaps)
	reserved := []netip.Prefix{
		netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("198.19.0.0/16"),
	}

	switch home {
	case 0:
		if slices.ContainsFunc(vpcCIDRs(v), netip.MustParsePrefix("10.0.0.0/15").Overlaps) {
			reserved = append(reserved, netip.MustParsePrefix("10.0.0.0/16"))
		}
	case 1:
		reserved = append(reserved, netip.MustParsePrefix("172.31.0.0/16"))
	}

	if range1918 >= 0 && range1918 != home || slices.ContainsFunc(reserved, cidr.Overlaps) {
		return newErrorf(
			codeInvalidVPCRange,
			"The CIDR '%s' is restricted. Use a CIDR from the same private address range as the current VPC CIDR, "+
				"or use a publicly-routable CIDR.",
			cidr,
		)
	}

	return nil
}
