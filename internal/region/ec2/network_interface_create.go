// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// createNetworkInterface creates a network interface that is not attached.
func (s networkInterfaceHandlers) createNetworkInterface(
	in *sdk.CreateNetworkInterfaceInput,
) (*sdk.CreateNetworkInterfaceOutput, error) {
	request := tokenRequest{"CreateNetworkInterface", in.ClientToken, in}
	answer := func(n *sdk.NetworkInterface) *sdk.CreateNetworkInterfaceOutput {
		s.st.refreshInterface(n)
		return &sdk.CreateNetworkInterfaceOutput{NetworkInterface: n}
	}

	if out, err := repeatedAnswer(s.Service, request, s.st.Interfaces, answer); out != nil || err != nil {
		return out, err
	}

	sub, err := s.st.findSubnet(in.SubnetId)
	if err != nil {
		return nil, err
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "network-interface")
	if err != nil {
		return nil, err
	}

	more := addressRequest{count: in.SecondaryPrivateIpAddressCount, prefixCount: in.Ipv4PrefixCount}
	if err := more.checkCombination(); err != nil {
		return nil, err
	}

	n, err := s.newNetworkInterface(interfaceSpec{
		subnet:      sub,
		kind:        "interface",
		description: str(in.Description),
		groups:      strs(in.Groups),
		privateIP:   str(in.PrivateIpAddress),
	})
	if err != nil {
		return nil, err
	}

	if _, err := s.assignAddresses(n, more); err != nil {
		s.st.removeInterface(str(n.NetworkInterfaceId))
		return nil, err
	}

	n.Attachment = nil
	n.Status = new(sdk.NetworkInterfaceStatusAvailable)
	s.st.setTags(str(n.NetworkInterfaceId), tags)

	return firstAnswer(s.Service, request, str(n.NetworkInterfaceId), answer(n))
}
