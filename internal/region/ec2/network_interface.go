// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) networkInterfaceOps() []wire.Op {
	return []wire.Op{
		readOperation(s, "DescribeNetworkInterfaces", s.describeNetworkInterfaces),
		writeOperation(s, "ModifyNetworkInterfaceAttribute", s.modifyNetworkInterfaceAttribute),
		writeOperation(s, "CreateNetworkInterface", s.createNetworkInterface),
		writeOperation(s, "DeleteNetworkInterface", s.deleteNetworkInterface),
	}
}

// interfaceSpec says what interface is wanted.
type interfaceSpec struct {
	subnet      *sdk.Subnet
	kind        string // interface, nat_gateway, network_load_balancer
	description string
	requester   string
	managed     bool // AWS's own: users may not change it
	groups      []string
	privateIP   string // private address; empty for any
}

// privateDNSName is the DNS name of an instance's private address.
func (s *Service) privateDNSName(ip string) string {
	return "ip-" + strings.ReplaceAll(ip, ".", "-") + "." + PrivateDNSDomain(s.cfg.Region)
}

// PrivateDNSDomain is the domain of instances' private names in a region.
func PrivateDNSDomain(region string) string {
	if region == "us-east-1" {
		return "ec2.internal"
	}

	return region + ".compute.internal"
}

func (s *Service) newNetworkInterface(spec interfaceSpec) (*sdk.NetworkInterface, error) {
	addr, err := s.pickAddress(spec.subnet, spec.privateIP)
	if err != nil {
		return nil, err
	}

	groups, err := s.resolveSecurityGroups(str(spec.subnet.VpcId), spec.groups, s.cfg.Quotas.GroupsPerENI)
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
		PrivateDnsName:     new(s.privateDNSName(ip)),
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

// newMACAddress makes a locally administered hardware address, as AWS's begin with 02, 06, 0a or 0e.
func (s *Service) newMACAddress() string {
	h := s.randomHex(10)
	return fmt.Sprintf("02:%s:%s:%s:%s:%s", h[0:2], h[2:4], h[4:6], h[6:8], h[8:10])
}

// resolveSecurityGroups checks that groups exist and lie in the VPC. AWS's own interfaces may have none.
func (s *Service) resolveSecurityGroups(
	vpc string,
	ids []string,
	limit int,
) ([]*sdk.GroupIdentifier, error) {
	out := []*sdk.GroupIdentifier{}
	if len(ids) > limit {
		return nil, wire.Errorf(
			"SecurityGroupsPerInterfaceLimitExceeded",
			"The maximum number of security groups per interface has been reached.",
		)
	}

	for _, id := range ids {
		g, err := s.findSecurityGroup(&id)
		if err != nil {
			return nil, err
		}

		if str(g.VpcId) != vpc {
			return nil, wire.Errorf(
				"InvalidGroup.NotFound",
				"The security group '%s' does not exist in VPC '%s'",
				id,
				vpc,
			)
		}

		out = append(out, &sdk.GroupIdentifier{GroupId: g.GroupId, GroupName: g.GroupName})
	}

	return out, nil
}

func (s *Service) removeInterface(id string) {
	if n := s.st.Interfaces[id]; n != nil && n.Association != nil {
		if a := s.st.Addresses[str(n.Association.AllocationId)]; a != nil {
			s.clearAddressAssociation(a)
		}
	}

	s.blackholeRoutes(id)
	s.removeTags(id)
	delete(s.st.Interfaces, id)
}

// primaryInterfaceID is the id of an instance's interface.
func (s *Service) primaryInterfaceID(instance string) string {
	if x := s.st.Extra[instance]; x != nil {
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
		"network-interface-id": {
			str(n.NetworkInterfaceId),
		}, "subnet-id": {str(n.SubnetId)}, "vpc-id": {str(n.VpcId)},
		"availability-zone": {
			str(n.AvailabilityZone),
		}, "description": {str(n.Description)}, "status": {str(n.Status)},
		"interface-type": {
			str(n.InterfaceType),
		}, "mac-address": {str(n.MacAddress)}, "owner-id": {str(n.OwnerId)},
		"private-dns-name": {str(n.PrivateDnsName)}, "private-ip-address": {str(n.PrivateIpAddress)},
		"addresses.private-ip-address": {str(n.PrivateIpAddress)}, "requester-id": {str(n.RequesterId)},
		"requester-managed": {
			boolText(n.RequesterManaged),
		}, "source-dest-check": {boolText(n.SourceDestCheck)},
		"group-id": groups, "group-name": groupNames, "attachment.instance-id": {str(at.InstanceId)},
		"attachment.status": {str(at.Status)}, "attachment.attachment-id": {str(at.AttachmentId)},
		"association.allocation-id": {
			str(assoc.AllocationId),
		}, "association.public-ip": {str(assoc.PublicIp)},
		"association.association-id": {
			str(assoc.AssociationId),
		}, "attachment.instance-owner-id": {str(at.InstanceOwnerId)},
	}

	v, known := fields[name]

	return v, known
}

func (s *Service) describeNetworkInterfaces(
	in *sdk.DescribeNetworkInterfacesInput,
) (*sdk.DescribeNetworkInterfacesOutput, error) {
	got, next, err := listResources(
		s,
		s.st.Interfaces,
		describeQuery{in.NetworkInterfaceIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.NetworkInterface]{
			"InvalidNetworkInterfaceID.NotFound",
			"networkInterface ID",
			interfaceFilterValues,
		},
	)

	for _, n := range got {
		n.TagSet = s.tagList(str(n.NetworkInterfaceId))
		n.PrivateIpAddresses = []*sdk.NetworkInterfacePrivateIpAddress{{
			Primary:          new(true),
			PrivateIpAddress: n.PrivateIpAddress,
			PrivateDnsName:   n.PrivateDnsName,
			Association:      n.Association,
		}}
	}

	return &sdk.DescribeNetworkInterfacesOutput{NetworkInterfaces: got, NextToken: next}, err
}

func (s *Service) modifyNetworkInterfaceAttribute(
	in *sdk.ModifyNetworkInterfaceAttributeInput,
) (*sdk.ModifyNetworkInterfaceAttributeOutput, error) {
	n := s.st.Interfaces[str(in.NetworkInterfaceId)]
	if n == nil {
		return nil, notFound(str(in.NetworkInterfaceId))
	}

	if *n.RequesterManaged {
		return nil, wire.Errorf(
			"OperationNotPermitted",
			"You do not have permission to modify '%s'",
			str(n.NetworkInterfaceId),
		)
	}

	if len(in.Groups) > 0 {
		groups, err := s.resolveSecurityGroups(str(n.VpcId), strs(in.Groups), s.cfg.Quotas.GroupsPerENI)
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

func (s *Service) deleteNetworkInterface(
	in *sdk.DeleteNetworkInterfaceInput,
) (*sdk.DeleteNetworkInterfaceOutput, error) {
	n := s.st.Interfaces[str(in.NetworkInterfaceId)]
	if n == nil {
		return nil, notFound(str(in.NetworkInterfaceId))
	}

	if str(n.Status) != sdk.NetworkInterfaceStatusAvailable {
		return nil, wire.Errorf(
			"InvalidParameterValue",
			"Network interface '%s' is currently in use.",
			str(n.NetworkInterfaceId),
		)
	}

	s.removeInterface(str(n.NetworkInterfaceId))

	return &sdk.DeleteNetworkInterfaceOutput{}, nil
}

// createNetworkInterface makes an interface that is attached to nothing.
func (s *Service) createNetworkInterface(
	in *sdk.CreateNetworkInterfaceInput,
) (*sdk.CreateNetworkInterfaceOutput, error) {
	sub, err := s.findSubnet(in.SubnetId)
	if err != nil {
		return nil, err
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "network-interface")
	if err != nil {
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

	n.Attachment = nil
	n.Status = new(sdk.NetworkInterfaceStatusAvailable)
	s.setTags(str(n.NetworkInterfaceId), tags)
	n.TagSet = s.tagList(str(n.NetworkInterfaceId))

	return &sdk.CreateNetworkInterfaceOutput{NetworkInterface: n}, nil
}

// ManagedInterface is an interface that another service wants in a subnet, such as a load balancer's.
type ManagedInterface struct {
	ID           string // set by [Service.CreateManagedInterfaces]
	Addr         netip.Addr
	Subnet, VPC  string
	Zone         string
	Description  string
	Groups       []string
	AllocationID string     // elastic IP to tie to it
	Want         netip.Addr // private address; the zero value for any
}

// CreateManagedInterfaces makes interfaces for a load balancer, all or none, and fills in what they became.
func (s *Service) CreateManagedInterfaces(specs []ManagedInterface) ([]ManagedInterface, error) {
	out := slices.Clone(specs)
	err := s.withLock(func() error {
		var made []string
		for i := range out {
			n, err := s.createManagedInterface(&out[i])
			if err != nil {
				for _, id := range made {
					s.removeInterface(id)
				}

				return err
			}

			made = append(made, str(n.NetworkInterfaceId))
		}

		s.markChanged()

		return nil
	})

	return out, err
}

func (s *Service) createManagedInterface(f *ManagedInterface) (*sdk.NetworkInterface, error) {
	sub, err := s.findSubnet(&f.Subnet)
	if err != nil {
		return nil, err
	}

	want := ""
	if f.Want.IsValid() {
		want = f.Want.String()
	}

	var addr *sdk.Address
	if f.AllocationID != "" {
		if addr, err = s.findAddress(&f.AllocationID); err != nil {
			return nil, err
		}

		if addr.AssociationId != nil {
			return nil, wire.Errorf(
				"Resource.AlreadyAssociated",
				"resource %s is already associated",
				f.AllocationID,
			)
		}
	}

	n, err := s.newNetworkInterface(interfaceSpec{
		subnet:      sub,
		kind:        "network_load_balancer",
		description: f.Description,
		requester:   "amazon-elb",
		managed:     true,
		groups:      f.Groups,
		privateIP:   want,
	})
	if err != nil {
		return nil, err
	}

	if addr != nil {
		s.setAddressAssociation(addr, n)
	}

	f.ID, f.Zone, f.VPC = str(n.NetworkInterfaceId), str(n.AvailabilityZone), str(n.VpcId)
	f.Addr = netip.MustParseAddr(str(n.PrivateIpAddress))

	return n, nil
}

// DeleteManagedInterfaces removes interfaces that CreateManagedInterfaces made.
func (s *Service) DeleteManagedInterfaces(ids ...string) error {
	return s.withLock(func() error {
		for _, id := range ids {
			s.removeInterface(id)
		}

		s.markChanged()
		return nil
	})
}

// SetManagedInterfaceGroups changes the security groups of interfaces that CreateManagedInterfaces made.
func (s *Service) SetManagedInterfaceGroups(groups []string, ids ...string) error {
	return s.withLock(func() error {
		for _, id := range ids {
			n := s.st.Interfaces[id]
			if n == nil {
				return notFound(id)
			}

			got, err := s.resolveSecurityGroups(str(n.VpcId), groups, s.cfg.Quotas.GroupsPerENI)
			if err != nil {
				return err
			}

			n.Groups = got
		}

		s.markChanged()
		return nil
	})
}

// SubnetPlacement is where a subnet lies.
type SubnetPlacement struct {
	Subnet, VPC, Zone  string
	HasInternetGateway bool // the VPC has an internet gateway
}

// SubnetPlacements says where subnets lie.
func (s *Service) SubnetPlacements(subnets ...string) ([]SubnetPlacement, error) {
	var out []SubnetPlacement
	err := s.withLock(func() error {
		for _, id := range subnets {
			n, err := s.findSubnet(&id)
			if err != nil {
				return err
			}

			out = append(
				out,
				SubnetPlacement{
					id,
					str(n.VpcId),
					str(n.AvailabilityZone),
					s.vpcInternetGateway(str(n.VpcId)) != nil,
				},
			)
		}

		return nil
	})

	return out, err
}
