// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"net/netip"
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// subnetHandlers serves subnets.
type subnetHandlers struct{ *Service }

func (s subnetHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateSubnet", s.createSubnet),
		writeOperation(s.Service, "DeleteSubnet", s.deleteSubnet),
		readOperation(s.Service, "DescribeSubnets", s.describeSubnets),
		writeOperation(s.Service, "ModifySubnetAttribute", s.modifySubnetAttribute),
	}
}

func (s subnetHandlers) createSubnet(in *sdk.CreateSubnetInput) (*sdk.CreateSubnetOutput, error) {
	v, err := s.st.findVPC(in.VpcId)
	if err != nil {
		return nil, err
	}

	if in.CidrBlock == nil {
		return nil, missingParameter("cidrBlock")
	}

	cidr, err := parseCIDR(in.CidrBlock, "cidrBlock", codeInvalidSubnetRange)
	if err != nil {
		return nil, err
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "subnet")
	if err != nil {
		return nil, err
	}

	zone, err := s.cfg.resolveZone(in.AvailabilityZone, in.AvailabilityZoneId)
	if err != nil {
		return nil, err
	}

	if err := s.st.checkSubnetRange(v, cidr, s.cfg.Quotas.SubnetsPerVPC); err != nil {
		return nil, err
	}

	n := s.newSubnet(v, cidr, zone)
	s.st.setTags(str(n.SubnetId), tags)
	s.st.refreshSubnet(n)

	return &sdk.CreateSubnetOutput{Subnet: n}, nil
}

// newSubnet adds a subnet to the state.
func (s subnetHandlers) newSubnet(v *sdk.Vpc, cidr netip.Prefix, zone string) *sdk.Subnet {
	id := s.newID("subnet")
	n := &sdk.Subnet{
		SubnetId:                    new(id),
		VpcId:                       v.VpcId,
		CidrBlock:                   new(cidr.String()),
		State:                       new(sdk.SubnetStateAvailable),
		AvailabilityZone:            new(zone),
		AvailabilityZoneId:          new(s.cfg.zoneID(zone)),
		OwnerId:                     new(s.cfg.Account),
		SubnetArn:                   new(s.cfg.resourceARN(id)),
		DefaultForAz:                new(false),
		MapPublicIpOnLaunch:         new(false),
		AssignIpv6AddressOnCreation: new(false),
		EnableDns64:                 new(false),
		Ipv6Native:                  new(false),
		MapCustomerOwnedIpOnLaunch:  new(false),
		PrivateDnsNameOptionsOnLaunch: &sdk.PrivateDnsNameOptionsOnLaunch{
			HostnameType:                    new(sdk.HostnameTypeIpName),
			EnableResourceNameDnsARecord:    new(false),
			EnableResourceNameDnsAAAARecord: new(false),
		},
	}

	s.st.Subnets[id] = n

	return n
}

// checkSubnetRange refuses a CIDR block outside the VPC or overlapping another subnet, and one subnet more
// than limit.
func (st *serviceState) checkSubnetRange(v *sdk.Vpc, cidr netip.Prefix, limit int) error {
	inside := slices.ContainsFunc(
		vpcCIDRs(v),
		func(p netip.Prefix) bool { return p.Bits() <= cidr.Bits() && p.Contains(cidr.Addr()) },
	)
	if !inside {
		return newErrorf(codeInvalidSubnetRange, "The CIDR '%s' is invalid.", cidr)
	}

	count := 0

	for _, n := range st.Subnets {
		if str(n.VpcId) != str(v.VpcId) {
			continue
		}

		count++
		if cidr.Overlaps(netip.MustParsePrefix(str(n.CidrBlock))) {
			return newErrorf(
				codeInvalidSubnetConflict,
				"The CIDR '%s' conflicts with another subnet",
				cidr,
			)
		}
	}

	if count >= limit {
		return newError(codeSubnetLimitExceeded)
	}

	return nil
}

// refreshSubnet computes the derived fields of a subnet: free addresses and tags.
func (st *serviceState) refreshSubnet(n *sdk.Subnet) {
	bits := netip.MustParsePrefix(str(n.CidrBlock)).Bits()
	used := len(st.usedAddresses(str(n.SubnetId)))
	n.AvailableIpAddressCount = new(int64(1)<<(32-bits) - 5 - int64(used))
	n.Tags = st.tagList(str(n.SubnetId))
	n.Ipv6CidrBlockAssociationSet = []*sdk.SubnetIpv6CidrBlockAssociation{} // the region has no IPv6
}

func subnetFilterValues(n *sdk.Subnet, name string) ([]string, bool) {
	free := ""
	if n.AvailableIpAddressCount != nil {
		free = strconv.FormatInt(*n.AvailableIpAddressCount, 10)
	}

	cidr := str(n.CidrBlock)
	v, known := map[string]string{
		"subnet-id":                  str(n.SubnetId),
		"vpc-id":                     str(n.VpcId),
		"state":                      str(n.State),
		"availability-zone":          str(n.AvailabilityZone),
		"availabilityZone":           str(n.AvailabilityZone),
		"availability-zone-id":       str(n.AvailabilityZoneId),
		"cidr":                       cidr,
		"cidr-block":                 cidr,
		"cidrBlock":                  cidr,
		"subnet-arn":                 str(n.SubnetArn),
		"owner-id":                   str(n.OwnerId),
		"default-for-az":             boolText(n.DefaultForAz),
		"map-public-ip-on-launch":    boolText(n.MapPublicIpOnLaunch),
		"available-ip-address-count": free,
	}[name]

	return []string{v}, known
}

func (s subnetHandlers) describeSubnets(in *sdk.DescribeSubnetsInput) (*sdk.DescribeSubnetsOutput, error) {
	got, next, err := listResources(
		s.Service,
		s.st.Subnets,
		describeQuery{in.SubnetIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.Subnet]{codeInvalidSubnetIDNotFound, "subnet ID", subnetFilterValues},
	)

	for _, n := range got {
		s.st.refreshSubnet(n)
	}

	return &sdk.DescribeSubnetsOutput{Subnets: got, NextToken: next}, err
}

func (st *serviceState) findSubnet(id *string) (*sdk.Subnet, error) {
	if str(id) == "" {
		return nil, missingParameter("subnetId")
	}

	n := st.Subnets[str(id)]
	if n == nil {
		return nil, newMissingSubnetError(str(id))
	}

	return n, nil
}

// findVisibleSubnet returns a subnet that another service names, or the error about one that does not exist or is so new
// that the service does not see it yet.
func (s *Service) findVisibleSubnet(id string) (*sdk.Subnet, error) {
	n, err := s.st.findSubnet(&id)
	if err == nil && s.isUnseen(id) {
		return nil, newMissingSubnetError(id)
	}

	return n, err
}

func newMissingSubnetError(id string) error {
	return newErrorf(codeInvalidSubnetIDNotFound, "The subnet ID '%s' does not exist", id)
}

func (s subnetHandlers) deleteSubnet(in *sdk.DeleteSubnetInput) (*sdk.DeleteSubnetOutput, error) {
	n, err := s.st.findSubnet(in.SubnetId)
	if err != nil {
		return nil, err
	}

	id := str(n.SubnetId)

	for _, i := range s.st.Interfaces {
		if str(i.SubnetId) == id {
			return nil, dependencyViolation(
				"The subnet '%s' has dependencies and cannot be deleted. (%s)",
				id,
				str(i.NetworkInterfaceId),
			)
		}
	}

	for _, t := range s.st.Tables {
		t.Associations = slices.DeleteFunc(
			t.Associations,
			func(a *sdk.RouteTableAssociation) bool { return str(a.SubnetId) == id },
		)
	}

	s.st.removeTags(id)
	delete(s.st.LastIP, id)
	delete(s.st.Subnets, id)

	return &sdk.DeleteSubnetOutput{}, nil
}

func (s subnetHandlers) modifySubnetAttribute(
	in *sdk.ModifySubnetAttributeInput,
) (*sdk.ModifySubnetAttributeOutput, error) {
	n, err := s.st.findSubnet(in.SubnetId)
	if err != nil {
		return nil, err
	}

	given := 0
	hostname := n.PrivateDnsNameOptionsOnLaunch

	for _, c := range []struct {
		from *sdk.AttributeBooleanValue
		to   **bool
	}{
		{in.MapPublicIpOnLaunch, &n.MapPublicIpOnLaunch},
		{in.AssignIpv6AddressOnCreation, &n.AssignIpv6AddressOnCreation},
		{in.EnableDns64, &n.EnableDns64},
		{in.EnableResourceNameDnsARecordOnLaunch, &hostname.EnableResourceNameDnsARecord},
		{in.EnableResourceNameDnsAAAARecordOnLaunch, &hostname.EnableResourceNameDnsAAAARecord},
	} {
		if c.from != nil && c.from.Value != nil {
			given++
			*c.to = new(*c.from.Value)
		}
	}

	if in.PrivateDnsHostnameTypeOnLaunch != nil {
		given++
		if err := checkHostnameType("privateDnsHostnameTypeOnLaunch", in.PrivateDnsHostnameTypeOnLaunch); err != nil {
			return nil, err
		}

		hostname.HostnameType = in.PrivateDnsHostnameTypeOnLaunch
	}

	if given == 0 {
		return nil, missingParameter("an attribute")
	}

	return &sdk.ModifySubnetAttributeOutput{}, nil
}

// SubnetPlacement is the location of a subnet.
type SubnetPlacement struct {
	Subnet             string // id
	VPC                string // id
	Zone               string // such as us-east-1a
	HasInternetGateway bool   // an internet gateway is attached to the VPC
}

// SubnetPlacements returns the locations of subnets, in the given order. It does not see a new one for the visibility delay.
func (s *Service) SubnetPlacements(subnets ...string) ([]SubnetPlacement, error) {
	var out []SubnetPlacement
	err := s.withLock(func() error {
		for _, id := range subnets {
			n, err := s.findVisibleSubnet(id)
			if err != nil {
				return err
			}

			out = append(
				out,
				SubnetPlacement{
					id,
					str(n.VpcId),
					str(n.AvailabilityZone),
					s.st.vpcInternetGateway(str(n.VpcId)) != nil,
				},
			)
		}

		return nil
	})

	return out, err
}
