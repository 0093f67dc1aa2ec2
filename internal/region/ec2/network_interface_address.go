// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"net/netip"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// delegatedPrefixBits is the length of the IPv4 prefixes that EC2 assigns to network interfaces.
const delegatedPrefixBits = 28

// addressRequest is what a request asks for besides an interface's primary address.
type addressRequest struct {
	count       *int64    // of secondary addresses
	addresses   []*string // these secondary addresses
	prefixCount *int64    // of prefixes
	prefixes    []*string // these prefixes
}

// checkCombination refuses more than one of the ways to ask, of which EC2 takes one.
func (r addressRequest) checkCombination() error {
	ways := 0
	for _, given := range []bool{r.count != nil, len(r.addresses) > 0, r.prefixCount != nil, len(r.prefixes) > 0} {
		if given {
			ways++
		}
	}

	if ways > 1 {
		return newErrorf(
			codeInvalidParameterCombination,
			"Only one of a count of addresses, addresses, a count of prefixes and prefixes can be specified.",
		)
	}

	for _, number := range []*int64{r.count, r.prefixCount} {
		if number != nil && *number < 1 {
			return invalidParameter("count", numberText(number), "It must be at least 1.")
		}
	}

	return nil
}

// slots returns how many of an interface's places for addresses the request needs.
func (r addressRequest) slots() int64 {
	n := int64(len(r.addresses) + len(r.prefixes))
	for _, number := range []*int64{r.count, r.prefixCount} {
		if number != nil {
			n += *number
		}
	}

	return n
}

// secondaryAddresses returns the entries of an interface's addresses without that of the primary one.
func secondaryAddresses(n *sdk.NetworkInterface) []*sdk.NetworkInterfacePrivateIpAddress {
	return slices.DeleteFunc(
		slices.Clone(n.PrivateIpAddresses),
		func(a *sdk.NetworkInterfacePrivateIpAddress) bool { return isTrue(a.Primary) },
	)
}

// privateAddresses returns an interface's addresses, the primary one first.
func privateAddresses(n *sdk.NetworkInterface) []string {
	out := []string{str(n.PrivateIpAddress)}
	for _, a := range secondaryAddresses(n) {
		out = append(out, str(a.PrivateIpAddress))
	}

	return out
}

// usedSlots returns how many addresses and prefixes an interface has. Each takes one of the places that its instance's type has.
func usedSlots(n *sdk.NetworkInterface) int64 {
	return int64(1 + len(secondaryAddresses(n)) + len(n.Ipv4Prefixes))
}

// checkAddressLimit refuses more addresses and prefixes than an instance type has for each interface.
func (s networkInterfaceHandlers) checkAddressLimit(i *sdk.Instance, slots int64) error {
	if slots <= s.instanceTypes[str(i.InstanceType)].IPv4PerENI {
		return nil
	}

	return newError(codePrivateIPAddressLimitExceeded)
}

// assignedAddresses are the addresses and prefixes that a request has added.
type assignedAddresses struct {
	addresses []*sdk.AssignedPrivateIpAddress
	prefixes  []*sdk.Ipv4PrefixSpecification
}

// assignAddresses adds all that a request asks for to an interface, or nothing.
func (s networkInterfaceHandlers) assignAddresses(
	n *sdk.NetworkInterface,
	r addressRequest,
) (assignedAddresses, error) {
	was := *n
	out, err := s.tryAssignAddresses(n, r)
	if err != nil {
		n.PrivateIpAddresses = was.PrivateIpAddresses
		n.Ipv4Prefixes = was.Ipv4Prefixes
	}

	return out, err
}

func (s networkInterfaceHandlers) tryAssignAddresses(
	n *sdk.NetworkInterface,
	r addressRequest,
) (assignedAddresses, error) {
	var out assignedAddresses
	subnet := s.st.Subnets[str(n.SubnetId)]
	wanted := strs(r.addresses)
	if r.count != nil {
		wanted = make([]string, *r.count)
	}

	for _, want := range wanted {
		addr, err := s.st.pickAddress(subnet, want)
		if err != nil {
			return out, err
		}

		ip := addr.String()
		n.PrivateIpAddresses = append(secondaryAddresses(n), &sdk.NetworkInterfacePrivateIpAddress{
			Primary:          new(false),
			PrivateIpAddress: new(ip),
			PrivateDnsName:   new(s.cfg.privateDNSName(ip)),
		})
		out.addresses = append(out.addresses, &sdk.AssignedPrivateIpAddress{PrivateIpAddress: new(ip)})
	}

	blocks := strs(r.prefixes)
	if r.prefixCount != nil {
		blocks = make([]string, *r.prefixCount)
	}

	for _, want := range blocks {
		prefix, err := pickPrefix(s.st, subnet, want)
		if err != nil {
			return out, err
		}

		specification := &sdk.Ipv4PrefixSpecification{Ipv4Prefix: new(prefix.String())}
		n.Ipv4Prefixes = append(slices.Clone(n.Ipv4Prefixes), specification)
		out.prefixes = append(out.prefixes, specification)
	}

	return out, nil
}

func (s networkInterfaceHandlers) assignPrivateIPAddresses(
	in *sdk.AssignPrivateIpAddressesInput,
) (*sdk.AssignPrivateIpAddressesOutput, error) {
	n, err := s.st.findOwnInterface(in.NetworkInterfaceId)
	if err != nil {
		return nil, err
	}

	if isTrue(in.AllowReassignment) {
		return nil, notImplemented("AllowReassignment=true")
	}

	r := addressRequest{
		count:       in.SecondaryPrivateIpAddressCount,
		addresses:   in.PrivateIpAddresses,
		prefixCount: in.Ipv4PrefixCount,
		prefixes:    in.Ipv4Prefixes,
	}
	if err := r.checkCombination(); err != nil {
		return nil, err
	}

	if r.slots() == 0 {
		return nil, missingParameter("privateIpAddress, secondaryPrivateIpAddressCount, ipv4Prefix or ipv4PrefixCount")
	}

	if n.Attachment != nil {
		i := s.st.Instances[str(n.Attachment.InstanceId)]
		if err := s.checkAddressLimit(i, usedSlots(n)+r.slots()); err != nil {
			return nil, err
		}
	}

	done, err := s.assignAddresses(n, r)
	if err != nil {
		return nil, err
	}

	return &sdk.AssignPrivateIpAddressesOutput{
		NetworkInterfaceId:         n.NetworkInterfaceId,
		AssignedPrivateIpAddresses: done.addresses,
		AssignedIpv4Prefixes:       done.prefixes,
	}, nil
}

func (s networkInterfaceHandlers) unassignPrivateIPAddresses(
	in *sdk.UnassignPrivateIpAddressesInput,
) (*sdk.UnassignPrivateIpAddressesOutput, error) {
	n, err := s.st.findOwnInterface(in.NetworkInterfaceId)
	if err != nil {
		return nil, err
	}

	if len(in.PrivateIpAddresses)+len(in.Ipv4Prefixes) == 0 {
		return nil, missingParameter("privateIpAddress or ipv4Prefix")
	}

	for _, ip := range strs(in.PrivateIpAddresses) {
		if !slices.Contains(privateAddresses(n)[1:], ip) {
			return nil, notAssigned(ip, n)
		}
	}

	for _, prefix := range strs(in.Ipv4Prefixes) {
		if !slices.Contains(delegatedPrefixes(n), prefix) {
			return nil, notAssigned(prefix, n)
		}
	}

	n.PrivateIpAddresses = slices.DeleteFunc(
		secondaryAddresses(n),
		func(a *sdk.NetworkInterfacePrivateIpAddress) bool {
			return slices.Contains(strs(in.PrivateIpAddresses), str(a.PrivateIpAddress))
		},
	)
	n.Ipv4Prefixes = slices.DeleteFunc(
		slices.Clone(n.Ipv4Prefixes),
		func(p *sdk.Ipv4PrefixSpecification) bool {
			return slices.Contains(strs(in.Ipv4Prefixes), str(p.Ipv4Prefix))
		},
	)

	return &sdk.UnassignPrivateIpAddressesOutput{}, nil
}

// notAssigned is the error about an address or prefix that an interface does not have besides its primary address.
func notAssigned(what string, n *sdk.NetworkInterface) error {
	return newErrorf(
		codeInvalidParameterValue,
		"Some of [%s] are not assigned to interface %s",
		what,
		str(n.NetworkInterfaceId),
	)
}

// delegatedPrefixes returns the prefixes of an interface.
func delegatedPrefixes(n *sdk.NetworkInterface) []string {
	var out []string
	for _, p := range n.Ipv4Prefixes {
		out = append(out, str(p.Ipv4Prefix))
	}

	return out
}

// pickPrefix returns a free prefix of a subnet: the wanted one or, if want is empty, the first one.
func pickPrefix(st *serviceState, n *sdk.Subnet, want string) (netip.Prefix, error) {
	cidr := netip.MustParsePrefix(str(n.CidrBlock))
	used := st.usedAddresses(str(n.SubnetId))
	for _, a := range reservedAddresses(cidr) {
		used[a] = true
	}

	prefix := netip.PrefixFrom(cidr.Addr(), delegatedPrefixBits)
	for ; cidr.Contains(prefix.Addr()); prefix = nextPrefix(prefix) {
		isWanted := want == "" || want == prefix.String()
		isFree := func() bool {
			return !slices.ContainsFunc(addressesOf(prefix), func(a netip.Addr) bool { return used[a] })
		}

		if isWanted && isFree() {
			return prefix, nil
		}
	}

	if want != "" {
		return netip.Prefix{}, invalidParameter("ipv4Prefix", want, "It is no free prefix of the subnet.")
	}

	return netip.Prefix{}, newError(codeInsufficientCIDRBlocks)
}
