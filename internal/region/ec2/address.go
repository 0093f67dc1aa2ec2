// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"net/netip"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// addressHandlers serves Elastic IP addresses.
type addressHandlers struct{ *Service }

func (s addressHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "AllocateAddress", s.allocateAddress),
		writeOperation(s.Service, "ReleaseAddress", s.releaseAddress),
		writeOperation(s.Service, "AssociateAddress", s.associateAddress),
		writeOperation(s.Service, "DisassociateAddress", s.disassociateAddress),
		readOperation(s.Service, "DescribeAddresses", s.describeAddresses),
		readOperation(s.Service, "DescribeAddressesAttribute", s.describeAddressesAttribute),
	}
}

// allocatePublicIP returns a free public address: from the /16 of Config.PublicIPBase, or else from
// 198.19.0.0/16, a range reserved for tests (RFC 2544), so that it never is the address of a real host.
func (s addressHandlers) allocatePublicIP() string {
	used := map[string]bool{}
	for _, a := range s.st.Addresses {
		used[str(a.PublicIp)] = true
	}

	for _, n := range s.st.Interfaces {
		if n.Association != nil {
			used[str(n.Association.PublicIp)] = true
		}
	}

	base := [4]byte{198, 19}
	if s.cfg.PublicIPBase.Is4() {
		base = s.cfg.PublicIPBase.As4()
	}

	for {
		s.st.LastPublic = s.st.LastPublic%65000 + 1
		ip := netip.AddrFrom4(
			[4]byte{base[0], base[1], base[2] + byte(s.st.LastPublic>>8&0xff), byte(s.st.LastPublic & 0xff)},
		).String()
		if !used[ip] {
			return ip
		}
	}
}

func (s addressHandlers) allocateAddress(in *sdk.AllocateAddressInput) (*sdk.AllocateAddressOutput, error) {
	if d := str(in.Domain); d != "" && d != "vpc" {
		return nil, invalidParameter("domain", d, "Only vpc is supported")
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "elastic-ip")
	if err != nil {
		return nil, err
	}

	if len(s.st.Addresses) >= s.cfg.Quotas.Addresses {
		return nil, newError(codeAddressLimitExceeded)
	}

	id := s.newID("eipalloc")
	a := &sdk.Address{
		AllocationId:       new(id),
		PublicIp:           new(s.allocatePublicIP()),
		Domain:             new("vpc"),
		PublicIpv4Pool:     new("amazon"),
		NetworkBorderGroup: new(s.cfg.Region),
	}

	s.st.Addresses[id] = a
	s.st.setTags(id, tags)

	return &sdk.AllocateAddressOutput{
		AllocationId:       a.AllocationId,
		PublicIp:           a.PublicIp,
		Domain:             a.Domain,
		PublicIpv4Pool:     a.PublicIpv4Pool,
		NetworkBorderGroup: a.NetworkBorderGroup,
	}, nil
}

func (st *serviceState) findAddress(id *string) (*sdk.Address, error) {
	if str(id) == "" {
		return nil, missingParameter("AllocationId")
	}

	a := st.Addresses[str(id)]
	if a == nil {
		return nil, newErrorf(
			codeInvalidAllocationIDNotFound,
			"The allocation ID '%s' does not exist",
			str(id),
		)
	}

	return a, nil
}

func (s addressHandlers) releaseAddress(in *sdk.ReleaseAddressInput) (*sdk.ReleaseAddressOutput, error) {
	a, err := s.st.findAddress(in.AllocationId)
	if err != nil {
		return nil, err
	}

	if a.AssociationId != nil {
		return nil, refuseRelease(s.st, a)
	}

	if s.freed.Hides(str(a.AllocationId)) {
		return nil, newNotOwnedError()
	}

	s.st.removeTags(str(a.AllocationId))
	delete(s.st.Addresses, str(a.AllocationId))

	return &sdk.ReleaseAddressOutput{}, nil
}

// refuseRelease returns the error about the release of an address that an interface has. An interface that belongs to an AWS
// service, such as a NAT gateway, is not the caller's.
func refuseRelease(st *serviceState, a *sdk.Address) error {
	if st.isHeldByService(a) {
		return newNotOwnedError()
	}

	return newErrorf(codeInvalidIPAddressInUse, "Address %s is in use.", str(a.PublicIp))
}

// isHeldByService reports whether an interface of an AWS service has the address.
func (st *serviceState) isHeldByService(a *sdk.Address) bool {
	n := st.Interfaces[str(a.NetworkInterfaceId)]

	return n != nil && isTrue(n.RequesterManaged)
}

// newNotOwnedError returns the error about an address that an AWS service has.
func newNotOwnedError() error {
	return newErrorf(
		codeAuthFailure,
		"You do not have permission to access the specified resource.",
	)
}

// setAddressAssociation associates an Elastic IP address with a network interface.
func (s addressHandlers) setAddressAssociation(a *sdk.Address, n *sdk.NetworkInterface) {
	a.AssociationId = new(s.newID("eipassoc"))
	a.NetworkInterfaceId = n.NetworkInterfaceId
	a.NetworkInterfaceOwnerId = n.OwnerId
	a.PrivateIpAddress = n.PrivateIpAddress
	if n.Attachment != nil {
		a.InstanceId = n.Attachment.InstanceId
	}

	n.Association = &sdk.NetworkInterfaceAssociation{
		AllocationId:  a.AllocationId,
		AssociationId: a.AssociationId,
		PublicIp:      a.PublicIp,
		IpOwnerId:     new(s.cfg.Account),
		PublicDnsName: new(s.cfg.publicDNSName(str(a.PublicIp))),
	}
}

// clearAddressAssociation undoes setAddressAssociation.
func (st *serviceState) clearAddressAssociation(a *sdk.Address) {
	if n := st.Interfaces[str(a.NetworkInterfaceId)]; n != nil {
		n.Association = nil
	}

	a.AssociationId = nil
	a.NetworkInterfaceId = nil
	a.NetworkInterfaceOwnerId = nil
	a.PrivateIpAddress = nil
	a.InstanceId = nil
}

// findInterfaceToAssociate returns the network interface that a request names, directly or by its instance.
func (st *serviceState) findInterfaceToAssociate(
	in *sdk.AssociateAddressInput,
) (*sdk.NetworkInterface, error) {
	interfaceID := str(in.NetworkInterfaceId)
	if interfaceID == "" {
		i, err := st.findInstance(in.InstanceId)
		if err != nil {
			return nil, err
		}

		if !isLive(i) {
			return nil, newErrorf(
				codeInvalidInstanceID,
				"The instance '%s' is not in a valid state for this operation.",
				str(i.InstanceId),
			)
		}

		if err := checkSingleInterface(st, str(i.InstanceId)); err != nil {
			return nil, err
		}

		interfaceID = st.primaryInterfaceID(str(i.InstanceId))
	}

	n := st.Interfaces[interfaceID]
	if n == nil {
		return nil, notFound(interfaceID)
	}

	if st.vpcInternetGateway(str(n.VpcId)) == nil {
		return nil, newErrorf(
			codeGatewayNotAttached,
			"Network %s is not attached to any internet gateway",
			str(n.VpcId),
		)
	}

	return n, nil
}

func (s addressHandlers) associateAddress(
	in *sdk.AssociateAddressInput,
) (*sdk.AssociateAddressOutput, error) {
	a, err := s.st.findAddress(in.AllocationId)
	if err != nil {
		return nil, err
	}

	n, err := s.st.findInterfaceToAssociate(in)
	if err != nil {
		return nil, err
	}

	free := in.AllowReassociation == nil || *in.AllowReassociation
	if a.AssociationId != nil && str(a.NetworkInterfaceId) != str(n.NetworkInterfaceId) && !free {
		return nil, newErrorf(
			codeResourceAlreadyAssociated,
			"resource %s is already associated with associate-id %s",
			str(a.AllocationId),
			str(a.AssociationId),
		)
	}

	if a.AssociationId != nil {
		s.st.clearAddressAssociation(a)
	}

	if n.Association != nil {
		if old := s.st.Addresses[str(n.Association.AllocationId)]; old != nil {
			s.st.clearAddressAssociation(old)
		}
	}

	s.setAddressAssociation(a, n)

	return &sdk.AssociateAddressOutput{AssociationId: a.AssociationId}, nil
}

func (s addressHandlers) disassociateAddress(
	in *sdk.DisassociateAddressInput,
) (*sdk.DisassociateAddressOutput, error) {
	for _, a := range s.st.Addresses {
		if a.AssociationId == nil || str(a.AssociationId) != str(in.AssociationId) {
			continue
		}

		if s.st.isHeldByService(a) {
			return nil, newNotOwnedError()
		}

		s.st.clearAddressAssociation(a)

		return &sdk.DisassociateAddressOutput{}, nil
	}

	return nil, newErrorf(
		codeInvalidAssociationIDNotFound,
		"The association ID '%s' does not exist",
		str(in.AssociationId),
	)
}

func addressFilterValues(a *sdk.Address, name string) ([]string, bool) {
	fields := map[string]*string{
		"allocation-id":              a.AllocationId,
		"association-id":             a.AssociationId,
		"domain":                     a.Domain,
		"instance-id":                a.InstanceId,
		"network-interface-id":       a.NetworkInterfaceId,
		"private-ip-address":         a.PrivateIpAddress,
		"public-ip":                  a.PublicIp,
		"network-border-group":       a.NetworkBorderGroup,
		"network-interface-owner-id": a.NetworkInterfaceOwnerId,
	}

	v, known := fields[name]
	if v == nil {
		return nil, known
	}

	return []string{*v}, true
}

func (s addressHandlers) describeAddresses(
	in *sdk.DescribeAddressesInput,
) (*sdk.DescribeAddressesOutput, error) {
	filters := in.Filters
	if len(in.PublicIps) > 0 {
		filters = append(slices.Clip(filters), &sdk.Filter{Name: new("public-ip"), Values: in.PublicIps})
	}

	got, _, err := listResources(
		s.Service,
		s.st.Addresses,
		describeQuery{ids: in.AllocationIds, filters: filters},
		resourceLister[sdk.Address]{codeInvalidAllocationIDNotFound, "allocation ID", addressFilterValues},
	)
	if err == nil && len(in.PublicIps) > 0 && len(got) < len(in.PublicIps) {
		err = newErrorf(
			codeInvalidAddressNotFound,
			"Address '%s' not found.",
			strings.Join(strs(in.PublicIps), ", "),
		)
	}

	for _, a := range got {
		a.Tags = s.st.tagList(str(a.AllocationId))
	}

	return &sdk.DescribeAddressesOutput{Addresses: got}, err
}

// describeAddressesAttribute lists addresses without reverse DNS names, which this region does not have. The
// Terraform provider calls it.
func (s addressHandlers) describeAddressesAttribute(
	in *sdk.DescribeAddressesAttributeInput,
) (*sdk.DescribeAddressesAttributeOutput, error) {
	got, next, err := listResources(
		s.Service,
		s.st.Addresses,
		describeQuery{ids: in.AllocationIds, maxResults: in.MaxResults, nextToken: in.NextToken},
		resourceLister[sdk.Address]{codeInvalidAllocationIDNotFound, "allocation ID", addressFilterValues},
	)

	out := &sdk.DescribeAddressesAttributeOutput{NextToken: next}
	for _, a := range got {
		out.Addresses = append(
			out.Addresses,
			&sdk.AddressAttribute{AllocationId: a.AllocationId, PublicIp: a.PublicIp},
		)
	}

	return out, err
}
