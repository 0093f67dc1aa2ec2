// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// networkInterfaceHandlers serves network interfaces.
type networkInterfaceHandlers struct{ *Service }

func (s networkInterfaceHandlers) ops() []wire.Operation {
	return []wire.Operation{
		readOperation(s.Service, "DescribeNetworkInterfaces", s.describeNetworkInterfaces),
		writeOperation(s.Service, "ModifyNetworkInterfaceAttribute", s.modifyNetworkInterfaceAttribute),
		writeOperation(s.Service, "CreateNetworkInterface", s.createNetworkInterface),
		writeOperation(s.Service, "DeleteNetworkInterface", s.deleteNetworkInterface),
		writeOperation(s.Service, "AssignPrivateIpAddresses", s.assignPrivateIPAddresses),
		writeOperation(s.Service, "UnassignPrivateIpAddresses", s.unassignPrivateIPAddresses),
		writeOperation(s.Service, "AttachNetworkInterface", s.attachNetworkInterface),
		writeOperation(s.Service, "DetachNetworkInterface", s.detachNetworkInterface),
	}
}

// interfaceSpec describes a network interface to create.
type interfaceSpec struct {
	subnet      *sdk.Subnet
	kind        string   // interface, nat_gateway, vpc_endpoint or network_load_balancer
	description string   // shown by DescribeNetworkInterfaces
	requester   string   // service of AWS that owns the interface, such as amazon-elb; empty for the account
	managed     bool     // AWS manages it: users may not change it
	groups      []string // ids of security groups
	privateIP   string   // private address; empty for any
}

func (s networkInterfaceHandlers) newNetworkInterface(spec interfaceSpec) (*sdk.NetworkInterface, error) {
	addr, err := s.st.pickAddress(spec.subnet, spec.privateIP)
	if err != nil {
		return nil, err
	}

	groups, err := s.st.resolveSecurityGroups(str(spec.subnet.VpcId), spec.groups, s.cfg.Quotas.GroupsPerENI)
	if err != nil {
		return nil, err
	}

	id := s.newID("eni")
	ip := addr.String()
	n := &sdk.NetworkInterface{
		NetworkInterfaceId: new(id),
		SubnetId:           spec.subnet.SubnetId,
		VpcId:              spec.subnet.VpcId,
		AvailabilityZone:   spec.subnet.AvailabilityZone,
		Description:        new(spec.description),
		InterfaceType:      new(spec.kind),
		PrivateIpAddress:   new(ip),
		PrivateDnsName:     new(s.cfg.privateDNSName(ip)),
		MacAddress:         new(s.newMACAddress()),
		OwnerId:            new(s.cfg.Account),
		RequesterManaged:   new(spec.managed),
		SourceDestCheck:    new(spec.kind == "interface"),
		Status:             new(sdk.NetworkInterfaceStatusInUse),
		Groups:             groups,
		Ipv6Addresses:      []*sdk.NetworkInterfaceIpv6Address{},
		Attachment: &sdk.NetworkInterfaceAttachment{
			AttachmentId:        new(s.newID("eni-attach")),
			Status:              new(sdk.AttachmentStatusAttached),
			AttachTime:          new(s.cfg.Now().UTC()),
			DeleteOnTermination: new(!spec.managed),
			DeviceIndex:         new(int64(0)),
			NetworkCardIndex:    new(int64(0)),
			InstanceOwnerId:     new(s.cfg.Account),
		},
	}
	if spec.requester != "" {
		n.RequesterId = new(spec.requester)
		n.Attachment.InstanceOwnerId = new(spec.requester)
	}

	s.st.Interfaces[id] = n

	return n, nil
}

// newMACAddress returns a locally administered MAC address. Those of AWS begin with 02, 06, 0a or 0e.
func (s networkInterfaceHandlers) newMACAddress() string {
	h := s.randomHex(10)
	return fmt.Sprintf("02:%s:%s:%s:%s:%s", h[0:2], h[2:4], h[4:6], h[6:8], h[8:10])
}

// resolveSecurityGroups checks that security groups exist in a VPC and that there are not more than limit.
// The list may be empty only for interfaces that AWS manages.
func (st *serviceState) resolveSecurityGroups(
	vpc string,
	ids []string,
	limit int,
) ([]*sdk.GroupIdentifier, error) {
	out := []*sdk.GroupIdentifier{}
	if len(ids) > limit {
		return nil, newError(codeSecurityGroupsPerInterfaceLimitExceeded)
	}

	for _, id := range ids {
		g, err := st.findSecurityGroup(&id)
		if err != nil {
			return nil, err
		}

		if str(g.VpcId) != vpc {
			return nil, newErrorf(
				codeInvalidGroupNotFound,
				"The security group '%s' does not exist in VPC '%s'",
				id,
				vpc,
			)
		}

		out = append(out, &sdk.GroupIdentifier{GroupId: g.GroupId, GroupName: g.GroupName})
	}

	return out, nil
}

func (st *serviceState) removeInterface(id string) {
	if n := st.Interfaces[id]; n != nil && n.Association != nil {
		if a := st.Addresses[str(n.Association.AllocationId)]; a != nil {
			st.clearAddressAssociation(a)
		}
	}

	st.blackholeRoutes(id)
	st.removeTags(id)
	delete(st.Interfaces, id)
}

// primaryInterfaceID returns the id of an instance's network interface.
func (st *serviceState) primaryInterfaceID(instance string) string {
	if x := st.Extra[instance]; x != nil {
		return x.Interface
	}

	return ""
}

func interfaceFilterValues(n *sdk.NetworkInterface, name string) ([]string, bool) {
	var groups, groupNames []string
	for _, g := range n.Groups {
		groups = append(groups, str(g.GroupId))
		groupNames = append(groupNames, str(g.GroupName))
	}

	at := n.Attachment
	if at == nil {
		at = &sdk.NetworkInterfaceAttachment{}
	}

	assoc := n.Association
	if assoc == nil {
		assoc = &sdk.NetworkInterfaceAssociation{}
	}

	fields := map[string][]string{
		"network-interface-id":         {str(n.NetworkInterfaceId)},
		"subnet-id":                    {str(n.SubnetId)},
		"vpc-id":                       {str(n.VpcId)},
		"availability-zone":            {str(n.AvailabilityZone)},
		"description":                  {str(n.Description)},
		"status":                       {str(n.Status)},
		"interface-type":               {str(n.InterfaceType)},
		"mac-address":                  {str(n.MacAddress)},
		"owner-id":                     {str(n.OwnerId)},
		"private-dns-name":             {str(n.PrivateDnsName)},
		"private-ip-address":           {str(n.PrivateIpAddress)},
		"addresses.private-ip-address": privateAddresses(n),
		"requester-id":                 {str(n.RequesterId)},
		"requester-managed":            {boolText(n.RequesterManaged)},
		"source-dest-check":            {boolText(n.SourceDestCheck)},
		"group-id":                     groups,
		"group-name":                   groupNames,
		"attachment.device-index":      {numberText(at.DeviceIndex)},
		"attachment.instance-id":       {str(at.InstanceId)},
		"attachment.status":            {str(at.Status)},
		"attachment.attachment-id":     {str(at.AttachmentId)},
		"association.allocation-id":    {str(assoc.AllocationId)},
		"association.public-ip":        {str(assoc.PublicIp)},
		"association.association-id":   {str(assoc.AssociationId)},
		"attachment.instance-owner-id": {str(at.InstanceOwnerId)},
	}

	v, known := fields[name]

	return v, known
}

func (s networkInterfaceHandlers) describeNetworkInterfaces(
	in *sdk.DescribeNetworkInterfacesInput,
) (*sdk.DescribeNetworkInterfacesOutput, error) {
	got, next, err := listResources(
		s.Service,
		s.st.Interfaces,
		describeQuery{in.NetworkInterfaceIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.NetworkInterface]{
			codeInvalidNetworkInterfaceIDNotFound,
			"networkInterface ID",
			interfaceFilterValues,
		},
	)

	for _, n := range got {
		s.st.refreshInterface(n)
	}

	return &sdk.DescribeNetworkInterfacesOutput{NetworkInterfaces: got, NextToken: next}, err
}

// refreshInterface computes the derived fields of a network interface: the entry of its primary address, which is the first, and tags.
func (st *serviceState) refreshInterface(n *sdk.NetworkInterface) {
	n.TagSet = st.tagList(str(n.NetworkInterfaceId))
	primary := &sdk.NetworkInterfacePrivateIpAddress{
		Primary:          new(true),
		PrivateIpAddress: n.PrivateIpAddress,
		PrivateDnsName:   n.PrivateDnsName,
		Association:      n.Association,
	}
	n.PrivateIpAddresses = append([]*sdk.NetworkInterfacePrivateIpAddress{primary}, secondaryAddresses(n)...)
}

// numberText formats an optional number; a missing one is empty.
func numberText(n *int64) string {
	if n == nil {
		return ""
	}

	return strconv.FormatInt(*n, 10)
}

// checkOwnInterface refuses to change an interface that AWS manages.
func checkOwnInterface(n *sdk.NetworkInterface) error {
	if isTrue(n.RequesterManaged) {
		return newErrorf(
			codeOperationNotPermitted,
			"You do not have permission to modify '%s'",
			str(n.NetworkInterfaceId),
		)
	}

	return nil
}

// findInterface returns a network interface.
func (st *serviceState) findInterface(id *string) (*sdk.NetworkInterface, error) {
	n := st.Interfaces[str(id)]
	if n == nil {
		return nil, notFound(str(id))
	}

	return n, nil
}

// findOwnInterface returns a network interface that AWS does not manage.
func (st *serviceState) findOwnInterface(id *string) (*sdk.NetworkInterface, error) {
	n, err := st.findInterface(id)
	if err != nil {
		return nil, err
	}

	return n, checkOwnInterface(n)
}

func (s networkInterfaceHandlers) modifyNetworkInterfaceAttribute(
	in *sdk.ModifyNetworkInterfaceAttributeInput,
) (*sdk.ModifyNetworkInterfaceAttributeOutput, error) {
	n, err := s.st.findOwnInterface(in.NetworkInterfaceId)
	if err != nil {
		return nil, err
	}

	if in.Attachment != nil {
		if err := changeInterfaceAttachment(n, in.Attachment); err != nil {
			return nil, err
		}
	}

	if len(in.Groups) > 0 {
		groups, err := s.st.resolveSecurityGroups(str(n.VpcId), strs(in.Groups), s.cfg.Quotas.GroupsPerENI)
		if err != nil {
			return nil, err
		}

		n.Groups = groups
	}

	if in.SourceDestCheck != nil && in.SourceDestCheck.Value != nil {
		n.SourceDestCheck = in.SourceDestCheck.Value
	}

	if in.Description != nil {
		n.Description = in.Description.Value
	}

	return &sdk.ModifyNetworkInterfaceAttributeOutput{}, nil
}

func (s networkInterfaceHandlers) deleteNetworkInterface(
	in *sdk.DeleteNetworkInterfaceInput,
) (*sdk.DeleteNetworkInterfaceOutput, error) {
	n, err := s.st.findInterface(in.NetworkInterfaceId)
	if err != nil {
		return nil, err
	}

	if str(n.Status) != sdk.NetworkInterfaceStatusAvailable {
		return nil, newErrorf(
			codeInvalidParameterValue,
			"Network interface '%s' is currently in use.",
			str(n.NetworkInterfaceId),
		)
	}

	s.st.removeInterface(str(n.NetworkInterfaceId))

	return &sdk.DeleteNetworkInterfaceOutput{}, nil
}
