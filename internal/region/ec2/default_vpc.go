// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/binary"
	"net/netip"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// The default VPC of an account has this range, and a subnet of this size in each availability zone. Source:
// https://docs.aws.amazon.com/vpc/latest/userguide/default-vpc-components.html
const (
	defaultVPCRange   = "172.31.0.0/16"
	defaultSubnetBits = 20
)

// ensureDefaultVPC creates the default VPC of a new account, once: an operator may delete it.
func (s *Service) ensureDefaultVPC() error {
	if !s.cfg.DefaultVPC || s.st.AccountOpened {
		return nil
	}

	return s.withLock(func() error {
		s.st.AccountOpened = true
		if len(s.st.VPCs) == 0 {
			s.addDefaultVPC()
		}

		s.markChanged()

		return nil
	})
}

// addDefaultVPC creates the default VPC with a subnet in each zone, an internet gateway, and a route to it in the
// main route table. The caller holds the lock.
func (s *Service) addDefaultVPC() {
	cidr := netip.MustParsePrefix(defaultVPCRange)
	v := vpcHandlers{s}.newVPC(cidr, sdk.TenancyDefault)
	v.State = new(sdk.VpcStateAvailable)
	v.IsDefault = new(true)
	id := str(v.VpcId)
	s.st.Attributes[id].DNSHostnames = true

	gateway := internetGatewayHandlers{s}.newInternetGateway()
	gateway.Attachments = []*sdk.InternetGatewayAttachment{{VpcId: v.VpcId, State: new("available")}}

	internet := newRoute(netip.MustParsePrefix("0.0.0.0/0"))
	internet.GatewayId = gateway.InternetGatewayId

	for _, t := range s.st.Tables {
		if str(t.VpcId) == id {
			t.Routes = append(t.Routes, internet)
		}
	}

	for number, letter := range s.cfg.Zones {
		n := subnetHandlers{s}.newSubnet(v, numberedSubnet(cidr, number), s.cfg.Region+letter)
		n.DefaultForAz = new(true)
		n.MapPublicIpOnLaunch = new(true)
	}
}

// numberedSubnet returns the range of a default subnet.
func numberedSubnet(vpc netip.Prefix, number int) netip.Prefix {
	first := binary.BigEndian.Uint32(vpc.Addr().AsSlice())

	return netip.PrefixFrom(ipv4Addr(first+uint32(number)<<(32-defaultSubnetBits)), defaultSubnetBits)
}

// defaultVPC returns the default VPC; nil if the account has none.
func (st *serviceState) defaultVPC() *sdk.Vpc {
	for _, v := range st.VPCs {
		if *v.IsDefault {
			return v
		}
	}

	return nil
}

// defaultVPCID returns the id of the default VPC, or the error of a request that needs one.
func (st *serviceState) defaultVPCID() (*string, error) {
	if v := st.defaultVPC(); v != nil {
		return v.VpcId, nil
	}

	return nil, newError(codeVPCIDNotSpecified)
}

// defaultSubnetID returns the id of the default subnet in a zone, or in the first zone that has one if zone is empty.
func (st *serviceState) defaultSubnetID(zone string) (*string, error) {
	var found *sdk.Subnet
	for _, n := range st.Subnets {
		if !*n.DefaultForAz || zone != "" && str(n.AvailabilityZone) != zone {
			continue
		}

		if found == nil || str(n.AvailabilityZone) < str(found.AvailabilityZone) {
			found = n
		}
	}

	switch {
	case found != nil:
		return found.SubnetId, nil
	case st.defaultVPC() != nil && zone != "":
		return nil, newErrorf(
			codeMissingInput,
			"No default subnet for availability zone: '%s'.",
			zone,
		)
	}

	return nil, newErrorf(
		codeMissingInput,
		"No subnets found for the default VPC. Please specify a subnet.",
	)
}
