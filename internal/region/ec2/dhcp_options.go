// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// defaultDHCPOptionsID is the id of the DHCP options that every account has in the region.
const defaultDHCPOptionsID = "dopt-00000000000000001"

// noDHCPOptions is what a VPC has instead of an id if no DHCP options are associated with it.
const noDHCPOptions = "default"

// amazonDNS is the resolver of a VPC as a value of domain-name-servers.
const amazonDNS = "AmazonProvidedDNS"

// The keys of DHCP options that the region has.
const (
	dhcpDomainName        = "domain-name"
	dhcpDomainNameServers = "domain-name-servers"
)

// dhcpOptionsHandlers serves DHCP options.
type dhcpOptionsHandlers struct{ *Service }

func (s dhcpOptionsHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateDhcpOptions", s.createDHCPOptions),
		writeOperation(s.Service, "DeleteDhcpOptions", s.deleteDHCPOptions),
		readOperation(s.Service, "DescribeDhcpOptions", s.describeDHCPOptions),
		writeOperation(s.Service, "AssociateDhcpOptions", s.associateDHCPOptions),
	}
}

// ensureDefaultDHCPOptions adds the DHCP options that every account has.
func (s *Service) ensureDefaultDHCPOptions() {
	s.st.DHCPOptions[defaultDHCPOptionsID] = &sdk.DhcpOptions{
		DhcpOptionsId: new(defaultDHCPOptionsID),
		OwnerId:       new(s.cfg.Account),
		DhcpConfigurations: []*sdk.DhcpConfiguration{
			newDHCPConfiguration(dhcpDomainName, PrivateDNSDomain(s.cfg.Region)),
			newDHCPConfiguration(dhcpDomainNameServers, amazonDNS),
		},
	}
}

func newDHCPConfiguration(key, value string) *sdk.DhcpConfiguration {
	return &sdk.DhcpConfiguration{Key: new(key), Values: []*sdk.AttributeValue{{Value: new(value)}}}
}

func (s dhcpOptionsHandlers) createDHCPOptions(
	in *sdk.CreateDhcpOptionsInput,
) (*sdk.CreateDhcpOptionsOutput, error) {
	tags, err := parseTagSpecs(in.TagSpecifications, "dhcp-options")
	if err != nil {
		return nil, err
	}

	configurations, err := parseDHCPConfigurations(in.DhcpConfigurations)
	if err != nil {
		return nil, err
	}

	id := s.newID(dhcpOptionsPrefix)
	o := &sdk.DhcpOptions{
		DhcpOptionsId:      new(id),
		OwnerId:            new(s.cfg.Account),
		DhcpConfigurations: configurations,
	}
	s.st.DHCPOptions[id] = o
	s.st.setTags(id, tags)
	o.Tags = s.st.tagList(id)

	return &sdk.CreateDhcpOptionsOutput{DhcpOptions: o}, nil
}

// parseDHCPConfigurations returns the options of a request. It refuses what the machines of the region would ignore.
func parseDHCPConfigurations(wanted []*sdk.NewDhcpConfiguration) ([]*sdk.DhcpConfiguration, error) {
	if len(wanted) == 0 {
		return nil, missingParameter("dhcpConfiguration")
	}

	var out []*sdk.DhcpConfiguration
	for _, c := range wanted {
		key := str(c.Key)
		value := strings.Join(strs(c.Values), ",")
		if err := checkDHCPOption(key, strs(c.Values)); err != nil {
			return nil, err
		}

		if slices.ContainsFunc(out, func(o *sdk.DhcpConfiguration) bool { return str(o.Key) == key }) {
			return nil, invalidParameter("dhcpConfiguration", key, "The option is given twice.")
		}

		out = append(out, newDHCPConfiguration(key, value))
	}

	if dhcpOption(out, dhcpDomainNameServers) == "" {
		return nil, newErrorf(
			codeUnsupportedOperation,
			"This region does not support DHCP options without %s: its machines use %s",
			dhcpDomainNameServers,
			amazonDNS,
		)
	}

	return out, nil
}

func checkDHCPOption(key string, values []string) error {
	switch key {
	case dhcpDomainName:
		if len(values) != 1 || strings.TrimSpace(values[0]) == "" {
			return invalidParameter(key, strings.Join(values, ","), "The option has one value.")
		}

	case dhcpDomainNameServers:
		if !slices.Equal(values, []string{amazonDNS}) {
			return newErrorf(
				codeUnsupportedOperation,
				"This region does not support the %s %s: its machines use %s",
				key,
				strings.Join(values, ","),
				amazonDNS,
			)
		}

	case "ntp-servers", "netbios-name-servers", "netbios-node-type", "ipv6-address-preferred-lease-time":
		return newErrorf(
			codeUnsupportedOperation,
			"This region does not support the DHCP option %s",
			key,
		)
	default:
		return invalidParameter("dhcpConfiguration", key, "The option is not known.")
	}

	return nil
}

// dhcpOption returns the value of an option, or "".
func dhcpOption(configurations []*sdk.DhcpConfiguration, key string) string {
	for _, c := range configurations {
		if str(c.Key) == key {
			return str(c.Values[0].Value)
		}
	}

	return ""
}

// domainName returns the domain name that DHCP gives to the instances of a VPC, or "" for none. It may be several names,
// separated by spaces.
func (st *serviceState) domainName(v *sdk.Vpc) string {
	o := st.DHCPOptions[str(v.DhcpOptionsId)]
	if o == nil {
		return ""
	}

	return dhcpOption(o.DhcpConfigurations, dhcpDomainName)
}

// localHostname returns the host name of an instance in its metadata. Unlike its private DNS name, it has the domain name
// that DHCP gives. If there are several names, it is followed by the others.
func (st *serviceState) localHostname(i *sdk.Instance) string {
	domain := st.domainName(st.VPCs[str(i.VpcId)])
	if domain == "" {
		return privateHostname(i)
	}

	return privateHostname(i) + "." + domain
}

func (st *serviceState) findDHCPOptions(id *string) (*sdk.DhcpOptions, error) {
	if str(id) == "" {
		return nil, missingParameter("dhcpOptionsId")
	}

	o := st.DHCPOptions[str(id)]
	if o == nil {
		return nil, newErrorf(
			codeInvalidDHCPOptionsIDNotFound,
			"The dhcpOption ID '%s' does not exist",
			str(id),
		)
	}

	return o, nil
}

func (s dhcpOptionsHandlers) deleteDHCPOptions(
	in *sdk.DeleteDhcpOptionsInput,
) (*sdk.DeleteDhcpOptionsOutput, error) {
	o, err := s.st.findDHCPOptions(in.DhcpOptionsId)
	if err != nil {
		return nil, err
	}

	id := str(o.DhcpOptionsId)
	if id == defaultDHCPOptionsID {
		return nil, newErrorf(
			codeUnsupportedOperation,
			"This region does not support the deletion of the default DHCP options",
		)
	}

	for _, v := range s.st.VPCs {
		if str(v.DhcpOptionsId) == id {
			return nil, dependencyViolation("The dhcpOptions '%s' has dependencies and cannot be deleted.", id)
		}
	}

	s.st.removeTags(id)
	delete(s.st.DHCPOptions, id)

	return &sdk.DeleteDhcpOptionsOutput{}, nil
}

func dhcpOptionsFilterValues(o *sdk.DhcpOptions, name string) ([]string, bool) {
	var keys, values []string
	for _, c := range o.DhcpConfigurations {
		keys = append(keys, str(c.Key))
		for _, v := range c.Values {
			values = append(values, str(v.Value))
		}
	}

	switch name {
	case "dhcp-options-id":
		return []string{str(o.DhcpOptionsId)}, true
	case "key":
		return keys, true
	case "value":
		return values, true
	case "owner-id":
		return []string{str(o.OwnerId)}, true
	}

	return nil, false
}

func (s dhcpOptionsHandlers) describeDHCPOptions(
	in *sdk.DescribeDhcpOptionsInput,
) (*sdk.DescribeDhcpOptionsOutput, error) {
	got, next, err := listResources(
		s.Service,
		s.st.DHCPOptions,
		describeQuery{in.DhcpOptionsIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.DhcpOptions]{
			codeInvalidDHCPOptionsIDNotFound,
			"dhcpOption ID",
			dhcpOptionsFilterValues,
		},
	)

	for _, o := range got {
		o.Tags = s.st.tagList(str(o.DhcpOptionsId))
	}

	return &sdk.DescribeDhcpOptionsOutput{DhcpOptions: got, NextToken: next}, err
}

// associateDHCPOptions gives a VPC other DHCP options. Its instances have the new domain name in their metadata at once;
// in AWS, the operating system takes it with the next renewal of its lease.
func (s dhcpOptionsHandlers) associateDHCPOptions(
	in *sdk.AssociateDhcpOptionsInput,
) (*sdk.AssociateDhcpOptionsOutput, error) {
	if str(in.DhcpOptionsId) != noDHCPOptions {
		if _, err := s.st.findDHCPOptions(in.DhcpOptionsId); err != nil {
			return nil, err
		}
	}

	v, err := s.st.findVPC(in.VpcId)
	if err != nil {
		return nil, err
	}

	v.DhcpOptionsId = in.DhcpOptionsId

	return &sdk.AssociateDhcpOptionsOutput{}, nil
}
