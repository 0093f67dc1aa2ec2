// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// validateVPC returns all reasons why a VPC cannot be applied, joined.
func validateVPC(vpc netspec.VPC) error {
	var errs []error
	if !isVPC(vpc.ID) {
		errs = append(errs, fmt.Errorf("vpc id %q: must be vpc- and hexadecimal digits", vpc.ID))
	}

	for _, c := range vpc.CIDRs {
		if !c.Addr().Is4() {
			errs = append(errs, fmt.Errorf("range %s: only IPv4 is supported", c))
		}
	}

	seen := map[netip.Addr]string{}
	use := func(what string, addr netip.Addr) {
		if !addr.Is4() ||
			!slices.ContainsFunc(vpc.CIDRs, func(c netip.Prefix) bool { return c.Contains(addr) }) {
			errs = append(errs, fmt.Errorf("%s: address %s is not an IPv4 address of the VPC", what, addr))
		}

		if other, twice := seen[addr]; twice {
			errs = append(errs, fmt.Errorf("%s: address %s is already used by %s", what, addr, other))
		}

		seen[addr] = what
	}

	for _, i := range vpc.Interfaces {
		for _, addr := range addressesOf(i) {
			use(i.ID, addr)
		}

		errs = append(errs, validateRules(i.ID, i.Ingress, i.Egress))
	}

	for _, lb := range vpc.LoadBalancers {
		for _, addr := range lb.Addrs {
			use(lb.ARN, addr)
		}

		errs = append(errs, validateRules(lb.ARN, lb.Ingress, lb.Egress))
	}

	return errors.Join(errs...)
}

// validateRules checks that rules can be rendered safely: their text is passed to nft unchanged.
func validateRules(of string, lists ...[]netspec.Rule) error {
	var errs []error
	for _, r := range slices.Concat(lists...) {
		if n, err := strconv.Atoi(r.Protocol); err == nil && n >= 0 && n <= 255 &&
			strconv.Itoa(n) == r.Protocol {
			continue
		}

		if !slices.Contains([]string{"", anyProtocol, "tcp", "udp", "icmp", "icmpv6"}, r.Protocol) {
			errs = append(
				errs,
				fmt.Errorf("%s: invalid protocol %q: want tcp, udp, icmp, a number, or nothing", of, r.Protocol),
			)
		}

		if (r.Protocol == "tcp" || r.Protocol == "udp") && (r.From < 0 || r.To > 65535 || r.From > r.To) {
			errs = append(
				errs,
				fmt.Errorf("%s: rule ports %d-%d: must be 0 to 65535, lower port first", of, r.From, r.To),
			)
		}
	}

	return errors.Join(errs...)
}
