// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"net/netip"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// vpcHandlers serves VPCs, their attributes, CIDR blocks and network ACLs.
type vpcHandlers struct{ *Service }

// HasVPC reports whether a VPC exists. It does not see a new one for the visibility delay.
func HasVPC(s *Service, id string) bool {
	found := false
	err := s.withLock(func() error {
		found = s.st.VPCs[id] != nil && !s.isUnseen(id)
		return nil
	})

	return found && err == nil
}

func (s vpcHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateVpc", s.createVPC),
		writeOperation(s.Service, "DeleteVpc", s.deleteVPC),
		readOperation(s.Service, "DescribeVpcs", s.describeVPCs),
		readOperation(s.Service, "DescribeVpcAttribute", s.describeVPCAttribute),
		writeOperation(s.Service, "ModifyVpcAttribute", s.modifyVPCAttribute),
		writeOperation(s.Service, "AssociateVpcCidrBlock", s.associateVPCCIDRBlock),
		writeOperation(s.Service, "DisassociateVpcCidrBlock", s.disassociateVPCCIDRBlock),
		readOperation(s.Service, "DescribeNetworkAcls", s.describeNetworkACLs),
	}
}

// parseCIDR parses an IPv4 CIDR block of /16 to /28; code is the error code for other sizes.
func parseCIDR(cidr *string, name string, code errorCode) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(str(cidr))
	if err != nil || !p.Addr().Is4() {
		return p, newErrorf(
			codeInvalidParameterValue,
			"Value (%s) for parameter %s is invalid. This is not a valid CIDR block.",
			str(cidr),
			name,
		)
	}

	if p.Bits() < 16 || p.Bits() > 28 {
		return p, newErrorf(code, "The CIDR '%s' is invalid.", str(cidr))
	}

	return p.Masked(), nil
}

func (s vpcHandlers) createVPC(in *sdk.CreateVpcInput) (*sdk.CreateVpcOutput, error) {
	if in.CidrBlock == nil {
		return nil, missingParameter("cidrBlock")
	}

	cidr, err := parseCIDR(in.CidrBlock, "cidrBlock", codeInvalidVPCRange)
	if err != nil {
		return nil, err
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "vpc")
	if err != nil {
		return nil, err
	}

	if in.AmazonProvidedIpv6CidrBlock != nil && *in.AmazonProvidedIpv6CidrBlock {
		return nil, newErrorf(codeUnsupportedOperation, "This region does not support IPv6")
	}

	if len(s.st.VPCs) >= s.cfg.Quotas.VPCs {
		return nil, newError(codeVPCLimitExceeded)
	}

	tenancy := "default"
	if in.InstanceTenancy != nil {
		tenancy = *in.InstanceTenancy
	}

	v := s.newVPC(cidr, tenancy)
	id := str(v.VpcId)
	s.st.setTags(id, tags)
	s.scheduleTransition(transitionVPCAvailable, id)
	v.Tags = s.st.tagList(id)

	// Descriptions of a VPC have the set only if it is not empty.
	created := *v
	created.Ipv6CidrBlockAssociationSet = []*sdk.VpcIpv6CidrBlockAssociation{}

	return &sdk.CreateVpcOutput{Vpc: &created}, nil
}

// newVPC adds a pending VPC to the state, with what every new VPC has.
func (s vpcHandlers) newVPC(cidr netip.Prefix, tenancy string) *sdk.Vpc {
	id := s.newID("vpc")
	v := &sdk.Vpc{
		VpcId:                   new(id),
		CidrBlock:               new(cidr.String()),
		State:                   new(sdk.VpcStatePending),
		OwnerId:                 new(s.cfg.Account),
		IsDefault:               new(false),
		InstanceTenancy:         new(tenancy),
		DhcpOptionsId:           new(defaultDHCPOptionsID),
		CidrBlockAssociationSet: []*sdk.VpcCidrBlockAssociation{s.newCIDRAssociation(cidr)},
	}
	s.st.VPCs[id] = v
	s.st.Attributes[id] = &vpcAttributes{DNSSupport: true}
	s.addVPCDefaults(id, cidr)

	return v
}

func (s vpcHandlers) newCIDRAssociation(cidr netip.Prefix) *sdk.VpcCidrBlockAssociation {
	return &sdk.VpcCidrBlockAssociation{
		AssociationId:  new(s.newID("vpc-cidr-assoc")),
		CidrBlock:      new(cidr.String()),
		CidrBlockState: &sdk.VpcCidrBlockState{State: new(sdk.VpcCidrBlockStateCodeAssociated)},
	}
}

// addVPCDefaults creates what every new VPC has: a main route table, a default network ACL and a default
// security group.
func (s vpcHandlers) addVPCDefaults(vpc string, cidr netip.Prefix) {
	tables := routeTableHandlers(s)
	table := tables.newRouteTable(vpc, []netip.Prefix{cidr})
	table.Associations = []*sdk.RouteTableAssociation{tables.newRouteTableAssociation(table, nil)}
	acl := s.newID("acl")
	entry := func(number int64, action string, egress bool) *sdk.NetworkAclEntry {
		return &sdk.NetworkAclEntry{
			RuleNumber: new(number),
			RuleAction: new(action),
			Egress:     new(egress),
			Protocol:   new("-1"),
			CidrBlock:  new("0.0.0.0/0"),
		}
	}

	s.st.ACLs[acl] = &sdk.NetworkAcl{
		NetworkAclId: new(acl),
		VpcId:        new(vpc),
		OwnerId:      new(s.cfg.Account),
		IsDefault:    new(true),
		Entries: []*sdk.NetworkAclEntry{
			entry(100, "allow", true),
			entry(32767, "deny", true),
			entry(100, "allow", false),
			entry(32767, "deny", false),
		},
	}

	group := securityGroupHandlers(s).newSecurityGroup(vpc, "default", "default VPC security group")
	securityGroupHandlers(s).addRule(&sdk.SecurityGroupRule{
		GroupId:    group.GroupId,
		IsEgress:   new(false),
		IpProtocol: new("-1"),
		FromPort:   new(int64(-1)),
		ToPort:     new(int64(-1)),
		ReferencedGroupInfo: &sdk.ReferencedSecurityGroup{
			GroupId: group.GroupId,
			UserId:  new(s.cfg.Account),
			VpcId:   new(vpc),
		},
	})
}

func vpcFilterValues(v *sdk.Vpc, name string) ([]string, bool) {
	switch name {
	case "vpc-id":
		return []string{str(v.VpcId)}, true
	case "state":
		return []string{str(v.State)}, true
	case "cidr", "cidr-block", "cidrBlock":
		return []string{str(v.CidrBlock)}, true
	case "is-default", "isDefault":
		return []string{boolText(v.IsDefault)}, true
	case "owner-id":
		return []string{str(v.OwnerId)}, true
	case "dhcp-options-id":
		return []string{str(v.DhcpOptionsId)}, true
	}

	return rangeFilterValues(v, name)
}

// rangeFilterValues returns the values of the filters of a VPC's address ranges.
func rangeFilterValues(v *sdk.Vpc, name string) ([]string, bool) {
	field, known := map[string]func(*sdk.VpcCidrBlockAssociation) *string{
		"cidr-block-association.association-id": func(c *sdk.VpcCidrBlockAssociation) *string { return c.AssociationId },
		"cidr-block-association.cidr-block":     func(c *sdk.VpcCidrBlockAssociation) *string { return c.CidrBlock },
		"cidr-block-association.state":          func(c *sdk.VpcCidrBlockAssociation) *string { return c.CidrBlockState.State },
	}[name]
	var out []string
	for _, c := range v.CidrBlockAssociationSet {
		if known {
			out = append(out, str(field(c)))
		}
	}

	return out, known
}

func (s vpcHandlers) describeVPCs(in *sdk.DescribeVpcsInput) (*sdk.DescribeVpcsOutput, error) {
	got, next, err := listResources(
		s.Service,
		s.st.VPCs,
		describeQuery{in.VpcIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.Vpc]{codeInvalidVPCIDNotFound, "vpc ID", vpcFilterValues},
	)

	for _, v := range got {
		v.Tags = s.st.tagList(str(v.VpcId))
	}

	return &sdk.DescribeVpcsOutput{Vpcs: got, NextToken: next}, err
}

func (st *serviceState) findVPC(id *string) (*sdk.Vpc, error) {
	if str(id) == "" {
		return nil, missingParameter("vpcId")
	}

	v := st.VPCs[str(id)]
	if v == nil {
		return nil, newErrorf(codeInvalidVPCIDNotFound, "The vpc ID '%s' does not exist", str(id))
	}

	return v, nil
}

func (s vpcHandlers) describeVPCAttribute(
	in *sdk.DescribeVpcAttributeInput,
) (*sdk.DescribeVpcAttributeOutput, error) {
	v, err := s.st.findVPC(in.VpcId)
	if err != nil {
		return nil, err
	}

	have := s.st.Attributes[str(v.VpcId)]
	out := &sdk.DescribeVpcAttributeOutput{VpcId: v.VpcId}

	switch str(in.Attribute) {
	case sdk.VpcAttributeNameEnableDnsSupport:
		out.EnableDnsSupport = &sdk.AttributeBooleanValue{Value: new(have.DNSSupport)}
	case sdk.VpcAttributeNameEnableDnsHostnames:
		out.EnableDnsHostnames = &sdk.AttributeBooleanValue{Value: new(have.DNSHostnames)}
	case sdk.VpcAttributeNameEnableNetworkAddressUsageMetrics:
		out.EnableNetworkAddressUsageMetrics = &sdk.AttributeBooleanValue{Value: new(have.AddressMetrics)}
	default:
		return nil, invalidParameter("attribute", str(in.Attribute), "")
	}

	return out, nil
}

func (s vpcHandlers) modifyVPCAttribute(
	in *sdk.ModifyVpcAttributeInput,
) (*sdk.ModifyVpcAttributeOutput, error) {
	v, err := s.st.findVPC(in.VpcId)
	if err != nil {
		return nil, err
	}

	have := s.st.Attributes[str(v.VpcId)]
	given := 0

	for _, c := range []struct {
		to   *bool
		from *sdk.AttributeBooleanValue
	}{
		{&have.DNSSupport, in.EnableDnsSupport},
		{&have.DNSHostnames, in.EnableDnsHostnames},
		{&have.AddressMetrics, in.EnableNetworkAddressUsageMetrics},
	} {
		if c.from != nil && c.from.Value != nil {
			given++
			if given > 1 {
				return nil, newErrorf(
					codeInvalidParameterCombination,
					"Fields for multiple attribute types specified",
				)
			}

			*c.to = *c.from.Value
		}
	}

	if given == 0 {
		return nil, missingParameter("an attribute")
	}

	return &sdk.ModifyVpcAttributeOutput{}, nil
}

// vpcDependency returns the id of a resource that prevents the deletion of a VPC, or "".
func (st *serviceState) vpcDependency(id string) string {
	blockers := map[string]bool{}
	for _, n := range st.Subnets {
		blockers[str(n.SubnetId)] = str(n.VpcId) == id
	}

	for _, g := range st.Groups {
		blockers[str(g.GroupId)] = str(g.VpcId) == id && str(g.GroupName) != "default"
	}

	for _, t := range st.Tables {
		blockers[str(t.RouteTableId)] = str(t.VpcId) == id && !isMainRouteTable(t)
	}

	for _, n := range st.Interfaces {
		blockers[str(n.NetworkInterfaceId)] = str(n.VpcId) == id
	}

	for _, e := range st.Endpoints {
		blockers[str(e.VpcEndpointId)] = str(e.VpcId) == id
	}

	if g := st.vpcInternetGateway(id); g != nil {
		blockers[str(g.InternetGatewayId)] = true
	}

	for _, by := range sortedKeys(blockers) {
		if blockers[by] {
			return by
		}
	}

	return ""
}

func (s vpcHandlers) deleteVPC(in *sdk.DeleteVpcInput) (*sdk.DeleteVpcOutput, error) {
	v, err := s.st.findVPC(in.VpcId)
	if err != nil {
		return nil, err
	}

	id := str(v.VpcId)
	if by := s.st.vpcDependency(id); by != "" {
		return nil, dependencyViolation("The vpc '%s' has dependencies and cannot be deleted. (%s)", id, by)
	}

	for k, t := range s.st.Tables {
		if str(t.VpcId) == id {
			s.st.removeTags(k)
			delete(s.st.Tables, k)
		}
	}

	for k, a := range s.st.ACLs {
		if str(a.VpcId) == id {
			s.st.removeTags(k)
			delete(s.st.ACLs, k)
		}
	}

	for k, g := range s.st.Groups {
		if str(g.VpcId) == id {
			s.st.removeSecurityGroup(k)
		}
	}

	s.st.removeTags(id)
	delete(s.st.Attributes, id)
	delete(s.st.VPCs, id)

	return &sdk.DeleteVpcOutput{}, nil
}

// maxVPCBlocks is the default quota of IPv4 CIDR blocks of a VPC, the primary one included.
const maxVPCBlocks = 5

func (s vpcHandlers) associateVPCCIDRBlock(
	in *sdk.AssociateVpcCidrBlockInput,
) (*sdk.AssociateVpcCidrBlockOutput, error) {
	v, err := s.st.findVPC(in.VpcId)
	if err != nil {
		return nil, err
	}

	cidr, err := parseCIDR(in.CidrBlock, "cidrBlock", codeInvalidVPCRange)
	if err != nil {
		return nil, err
	}

	for _, p := range vpcCIDRs(v) {
		if p.Overlaps(cidr) {
			return nil, newErrorf(codeInvalidVPCRange, "The CIDR '%s' overlaps with '%s'", cidr, p)
		}
	}

	if err := checkBlockRange(v, cidr); err != nil {
		return nil, err
	}

	if len(v.CidrBlockAssociationSet) >= maxVPCBlocks {
		return nil, newErrorf(
			codeCIDRLimitExceeded,
			"This network %s has met its maximum number of allowed CIDRs: %d",
			str(v.VpcId),
			maxVPCBlocks,
		)
	}

	a := s.newCIDRAssociation(cidr)
	a.CidrBlockState.State = new(sdk.VpcCidrBlockStateCodeAssociating)
	s.scheduleTransition(transitionCIDRAssociated, str(a.AssociationId))
	v.CidrBlockAssociationSet = append(v.CidrBlockAssociationSet, a)

	for _, t := range s.st.Tables {
		if str(t.VpcId) == str(v.VpcId) {
			t.Routes = append(t.Routes, newLocalRoute(cidr))
		}
	}

	return &sdk.AssociateVpcCidrBlockOutput{CidrBlockAssociation: a, VpcId: v.VpcId}, nil
}

func (s vpcHandlers) disassociateVPCCIDRBlock(
	in *sdk.DisassociateVpcCidrBlockInput,
) (*sdk.DisassociateVpcCidrBlockOutput, error) {
	for _, v := range s.st.VPCs {
		for i, a := range v.CidrBlockAssociationSet {
			if str(a.AssociationId) != str(in.AssociationId) {
				continue
			}

			if i == 0 {
				return nil, newErrorf(
					codeOperationNotPermitted,
					"The primary CIDR block of a VPC cannot be disassociated",
				)
			}

			cidr := netip.MustParsePrefix(str(a.CidrBlock))

			for _, n := range s.st.Subnets {
				if str(n.VpcId) == str(v.VpcId) && cidr.Overlaps(netip.MustParsePrefix(str(n.CidrBlock))) {
					return nil, dependencyViolation(
						"The CIDR '%s' holds the subnet '%s'",
						cidr,
						str(n.SubnetId),
					)
				}
			}

			v.CidrBlockAssociationSet = append(
				v.CidrBlockAssociationSet[:i],
				v.CidrBlockAssociationSet[i+1:]...)

			gone := *a
			gone.CidrBlockState = &sdk.VpcCidrBlockState{State: new(sdk.VpcCidrBlockStateCodeDisassociating)}

			return &sdk.DisassociateVpcCidrBlockOutput{CidrBlockAssociation: &gone, VpcId: v.VpcId}, nil
		}
	}

	return nil, newErrorf(
		codeInvalidVPCCIDRBlockAssociationIDNotFound,
		"The association ID '%s' does not exist",
		str(in.AssociationId),
	)
}

func vpcCIDRs(v *sdk.Vpc) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range v.CidrBlockAssociationSet {
		out = append(out, netip.MustParsePrefix(str(a.CidrBlock)))
	}

	return out
}

// applyCIDRTransition moves a CIDR block of a VPC from associating to associated.
func (s vpcHandlers) applyCIDRTransition(t transition) {
	for _, v := range s.st.VPCs {
		for _, a := range v.CidrBlockAssociationSet {
			if str(a.AssociationId) == t.ID {
				a.CidrBlockState = &sdk.VpcCidrBlockState{State: new(sdk.VpcCidrBlockStateCodeAssociated)}
			}
		}
	}
}

// applyVPCTransition moves a VPC from pending to available.
func (s vpcHandlers) applyVPCTransition(t transition) {
	if v := s.st.VPCs[t.ID]; v != nil {
		v.State = new(sdk.VpcStateAvailable)
	}
}
