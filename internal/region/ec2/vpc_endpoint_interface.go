// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

func (s vpcEndpointHandlers) configureInterfaceEndpoint(
	in *sdk.CreateVpcEndpointInput,
	e *sdk.VpcEndpoint,
) error {
	if len(in.RouteTableIds) > 0 {
		return newErrorf(
			codeInvalidParameter,
			"Route tables are not supported for endpoints of type Interface",
		)
	}

	groups := strs(in.SecurityGroupIds)
	if len(groups) == 0 {
		groups = []string{s.st.defaultSecurityGroupID(str(e.VpcId))}
	}

	if err := s.setEndpointSecurityGroups(e, groups); err != nil {
		return err
	}

	if in.PrivateDnsEnabled == nil || *in.PrivateDnsEnabled {
		return s.enablePrivateDNS(e)
	}

	return nil
}

func (s vpcEndpointHandlers) setEndpointSecurityGroups(e *sdk.VpcEndpoint, ids []string) error {
	found, err := s.st.resolveSecurityGroups(str(e.VpcId), ids, s.cfg.Quotas.GroupsPerENI)
	if err != nil {
		return err
	}

	e.Groups = nil
	for _, g := range found {
		e.Groups = append(e.Groups, &sdk.SecurityGroupIdentifier{GroupId: g.GroupId, GroupName: g.GroupName})
	}

	for _, id := range strs(e.NetworkInterfaceIds) {
		s.st.Interfaces[id].Groups = found
	}

	return nil
}

// enablePrivateDNS makes the private DNS name of the service resolve to the endpoint.
func (s vpcEndpointHandlers) enablePrivateDNS(e *sdk.VpcEndpoint) error {
	if a := s.st.Attributes[str(e.VpcId)]; a == nil || !a.DNSSupport || !a.DNSHostnames {
		return newErrorf(
			codeInvalidParameter,
			"Enabling private DNS requires both enableDnsSupport and enableDnsHostnames VPC attributes set to true for %s",
			str(e.VpcId),
		)
	}

	for _, other := range s.st.Endpoints {
		if other != e && str(other.VpcId) == str(e.VpcId) && str(other.ServiceName) == str(e.ServiceName) &&
			other.PrivateDnsEnabled != nil &&
			*other.PrivateDnsEnabled {
			return newErrorf(
				codeInvalidParameter,
				"private-dns-enabled cannot be set because there is already a conflicting DNS domain for %s in the VPC %s",
				str(e.ServiceName),
				str(e.VpcId),
			)
		}
	}

	e.PrivateDnsEnabled = new(true)

	return nil
}

// addEndpointInterfaces creates a network interface in each subnet for an endpoint, all or none.
func (s vpcEndpointHandlers) addEndpointInterfaces(e *sdk.VpcEndpoint, subnets []string) error {
	zones := map[string]string{}
	for _, id := range append(strs(e.SubnetIds), subnets...) {
		n, err := s.st.findSubnet(&id)
		if err != nil {
			return err
		}

		if str(n.VpcId) != str(e.VpcId) {
			return newErrorf(
				codeInvalidParameter,
				"Subnet %s does not belong to VPC %s",
				id,
				str(e.VpcId),
			)
		}

		if other := zones[str(n.AvailabilityZone)]; other != "" {
			return newErrorf(
				codeDuplicateSubnetsInSameZone,
				"Found another VPC endpoint subnet in the availability zone of %s",
				id,
			)
		}

		zones[str(n.AvailabilityZone)] = id
	}

	groups := []string{}
	for _, g := range e.Groups {
		groups = append(groups, str(g.GroupId))
	}

	var created []string

	for _, id := range subnets {
		n, err := networkInterfaceHandlers(s).newNetworkInterface(interfaceSpec{
			subnet:      s.st.Subnets[id],
			kind:        "vpc_endpoint",
			description: "VPC Endpoint Interface " + str(e.VpcEndpointId),
			requester:   "amazon-vpce",
			managed:     true,
			groups:      groups,
		})
		if err != nil {
			for _, m := range created {
				s.st.removeInterface(m)
			}

			return err
		}

		created = append(created, str(n.NetworkInterfaceId))
	}

	for i, id := range subnets {
		e.SubnetIds = append(e.SubnetIds, new(id))
		e.NetworkInterfaceIds = append(e.NetworkInterfaceIds, new(created[i]))
	}

	return nil
}

func (s vpcEndpointHandlers) modifyInterfaceEndpoint(
	in *sdk.ModifyVpcEndpointInput,
	e *sdk.VpcEndpoint,
) error {
	var groups []string
	for _, g := range e.Groups {
		if !slices.Contains(strs(in.RemoveSecurityGroupIds), str(g.GroupId)) {
			groups = append(groups, str(g.GroupId))
		}
	}

	for _, id := range strs(in.AddSecurityGroupIds) {
		if !slices.Contains(groups, id) {
			groups = append(groups, id)
		}
	}

	if len(groups) == 0 {
		return newErrorf(codeInvalidParameter, "An interface endpoint needs a security group")
	}

	if err := s.setEndpointSecurityGroups(e, groups); err != nil {
		return err
	}

	if err := s.changeEndpointSubnets(e, in); err != nil || in.PrivateDnsEnabled == nil {
		return err
	}

	if *in.PrivateDnsEnabled {
		return s.enablePrivateDNS(e)
	}

	e.PrivateDnsEnabled = new(false)

	return nil
}

// changeEndpointSubnets removes subnets from an endpoint and adds others.
func (s vpcEndpointHandlers) changeEndpointSubnets(e *sdk.VpcEndpoint, in *sdk.ModifyVpcEndpointInput) error {
	for _, id := range strs(in.RemoveSubnetIds) {
		at := slices.Index(strs(e.SubnetIds), id)
		if at < 0 {
			return newErrorf(codeInvalidParameter, "Subnet %s is not one of the endpoint's", id)
		}

		s.st.removeInterface(str(e.NetworkInterfaceIds[at]))
		e.SubnetIds = slices.Delete(e.SubnetIds, at, at+1)
		e.NetworkInterfaceIds = slices.Delete(e.NetworkInterfaceIds, at, at+1)
	}

	return s.addEndpointInterfaces(e, strs(in.AddSubnetIds))
}
