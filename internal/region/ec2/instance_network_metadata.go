// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// addNetworkMetadata adds the values about the network interfaces.
func (m *Metadata) addNetworkMetadata(i *sdk.Instance, meta func(path, value string)) {
	if len(i.NetworkInterfaces) == 0 {
		return
	}

	meta("mac", str(i.NetworkInterfaces[0].MacAddress))
	_, names := groupLists(i.SecurityGroups)
	meta("security-groups", strings.Join(names, "\n"))

	for _, n := range i.NetworkInterfaces {
		if str(n.Attachment.Status) == sdk.AttachmentStatusAttaching {
			continue // the machine does not see it yet
		}

		for path, v := range m.interfaceMetadata(i, n) {
			meta("network/interfaces/macs/"+str(n.MacAddress)+"/"+path, v)
		}
	}
}

// groupLists returns the ids and the names of security groups.
func groupLists(groups []*sdk.GroupIdentifier) (ids, names []string) {
	for _, g := range groups {
		ids = append(ids, str(g.GroupId))
		names = append(names, str(g.GroupName))
	}

	return ids, names
}

// interfaceMetadata returns the values of one network interface; those that are empty do not exist.
func (m *Metadata) interfaceMetadata(i *sdk.Instance, n *sdk.InstanceNetworkInterface) map[string]string {
	st := m.service.st
	groups, names := groupLists(n.Groups)
	var cidrs []string
	for _, c := range vpcCIDRs(st.VPCs[str(n.VpcId)]) {
		cidrs = append(cidrs, c.String())
	}

	whole := st.Interfaces[str(n.NetworkInterfaceId)]
	out := map[string]string{
		"device-number":          numberText(n.Attachment.DeviceIndex),
		"interface-id":           str(n.NetworkInterfaceId),
		"ipv4-prefix":            strings.Join(delegatedPrefixes(whole), "\n"),
		"local-hostname":         str(n.PrivateDnsName),
		"local-ipv4s":            strings.Join(privateAddresses(whole), "\n"),
		"mac":                    str(n.MacAddress),
		"owner-id":               m.service.cfg.Account,
		"security-group-ids":     strings.Join(groups, "\n"),
		"security-groups":        strings.Join(names, "\n"),
		"subnet-id":              str(n.SubnetId),
		"subnet-ipv4-cidr-block": str(st.Subnets[str(n.SubnetId)].CidrBlock),
		"vpc-id":                 str(n.VpcId),
		"vpc-ipv4-cidr-block":    cidrs[0],
		"vpc-ipv4-cidr-blocks":   strings.Join(cidrs, "\n"),
	}
	if n.Association == nil {
		return out
	}

	public := str(n.Association.PublicIp)
	out["public-ipv4s"] = public
	out["ipv4-associations/"+public] = str(n.PrivateIpAddress)
	if public == str(i.PublicIpAddress) {
		out["public-hostname"] = str(i.PublicDnsName)
	}

	return out
}
