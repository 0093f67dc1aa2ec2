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

func (s *Service) interfaceOps() []wire.Op {
	return []wire.Op{
		read(s, "DescribeNetworkInterfaces", s.describeInterfaces),
		write(s, "ModifyNetworkInterfaceAttribute", s.modifyInterface),
		write(s, "CreateNetworkInterface", s.createInterface),
		write(s, "DeleteNetworkInterface", s.deleteInterface),
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
	want        string // private address; empty for any
}

// privateName is the DNS name of an instance's private address.
func (s *Service) privateName(ip string) string {
	return "ip-" + strings.ReplaceAll(ip, ".", "-") + "." + Domain(s.cfg.Region)
}

// Domain is the domain of instances' private names in a region.
func Domain(region string) string {
	if region == "us-east-1" {
		return "ec2.internal"
	}
	return region + ".compute.internal"
}

func (s *Service) newInterface(spec interfaceSpec) (*sdk.NetworkInterface, error) {
	addr, err := s.pickAddr(spec.subnet, spec.want)
	if err != nil {
		return nil, err
	}
	groups, err := s.groupsOf(str(spec.subnet.VpcId), spec.groups)
	if err != nil {
		return nil, err
	}
	id, ip := s.newID("eni"), addr.String()
	n := &sdk.NetworkInterface{
		NetworkInterfaceId: new(id), SubnetId: spec.subnet.SubnetId, VpcId: spec.subnet.VpcId,
		AvailabilityZone: spec.subnet.AvailabilityZone, Description: new(spec.description), InterfaceType: new(spec.kind),
		PrivateIpAddress: new(ip), PrivateDnsName: new(s.privateName(ip)), MacAddress: new(s.mac()), OwnerId: new(s.cfg.Account),
		RequesterManaged: new(spec.managed), SourceDestCheck: new(spec.kind == "interface"), Status: new(sdk.NetworkInterfaceStatusInUse),
		Groups: groups, Ipv6Addresses: []*sdk.NetworkInterfaceIpv6Address{},
		Attachment: &sdk.NetworkInterfaceAttachment{
			AttachmentId: new(s.newID("eni-attach")), Status: new(sdk.AttachmentStatusAttached), AttachTime: new(s.cfg.Now().UTC()),
			DeleteOnTermination: new(!spec.managed), DeviceIndex: new(int64(0)), NetworkCardIndex: new(int64(0)), InstanceOwnerId: new(s.cfg.Account),
		},
	}
	if spec.requester != "" {
		n.RequesterId = new(spec.requester)
		n.Attachment.InstanceOwnerId = new(spec.requester)
	}
	s.st.Interfaces[id] = n
	return n, nil
}

// mac makes a locally administered hardware address, as AWS's begin with 02, 06, 0a or 0e.
func (s *Service) mac() string {
	h := s.hex(10)
	return fmt.Sprintf("02:%s:%s:%s:%s:%s", h[0:2], h[2:4], h[4:6], h[6:8], h[8:10])
}

// groupsOf checks that groups exist and lie in the VPC. AWS's own interfaces may have none.
func (s *Service) groupsOf(vpc string, ids []string) ([]*sdk.GroupIdentifier, error) {
	out := []*sdk.GroupIdentifier{}
	if len(ids) > s.cfg.Quotas.GroupsPerENI {
		return nil, wire.Errorf("SecurityGroupsPerInterfaceLimitExceeded", "The maximum number of security groups per interface has been reached.")
	}
	for _, id := range ids {
		g, err := s.group(&id)
		if err != nil {
			return nil, err
		}
		if str(g.VpcId) != vpc {
			return nil, wire.Errorf("InvalidGroup.NotFound", "The security group '%s' does not exist in VPC '%s'", id, vpc)
		}
		out = append(out, &sdk.GroupIdentifier{GroupId: g.GroupId, GroupName: g.GroupName})
	}
	return out, nil
}

func (s *Service) dropInterface(id string) {
	if n := s.st.Interfaces[id]; n != nil && n.Association != nil {
		if a := s.st.Addresses[str(n.Association.AllocationId)]; a != nil {
			s.unbind(a)
		}
	}
	s.blackhole(id)
	s.forget(id)
	delete(s.st.Interfaces, id)
}

// primary is the id of an instance's interface.
func (s *Service) primary(instance string) string {
	if x := s.st.Extra[instance]; x != nil {
		return x.Interface
	}
	return ""
}

func interfaceField(n *sdk.NetworkInterface, name string) ([]string, bool) {
	var groups, groupNames []string
	for _, g := range n.Groups {
		groups, groupNames = append(groups, str(g.GroupId)), append(groupNames, str(g.GroupName))
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
		"network-interface-id": {str(n.NetworkInterfaceId)}, "subnet-id": {str(n.SubnetId)}, "vpc-id": {str(n.VpcId)},
		"availability-zone": {str(n.AvailabilityZone)}, "description": {str(n.Description)}, "status": {str(n.Status)},
		"interface-type": {str(n.InterfaceType)}, "mac-address": {str(n.MacAddress)}, "owner-id": {str(n.OwnerId)},
		"private-dns-name": {str(n.PrivateDnsName)}, "private-ip-address": {str(n.PrivateIpAddress)},
		"addresses.private-ip-address": {str(n.PrivateIpAddress)}, "requester-id": {str(n.RequesterId)},
		"requester-managed": {boolText(n.RequesterManaged)}, "source-dest-check": {boolText(n.SourceDestCheck)},
		"group-id": groups, "group-name": groupNames, "attachment.instance-id": {str(at.InstanceId)},
		"attachment.status": {str(at.Status)}, "attachment.attachment-id": {str(at.AttachmentId)},
		"association.allocation-id": {str(assoc.AllocationId)}, "association.public-ip": {str(assoc.PublicIp)},
		"association.association-id": {str(assoc.AssociationId)}, "attachment.instance-owner-id": {str(at.InstanceOwnerId)},
	}
	v, known := fields[name]
	return v, known
}

func (s *Service) describeInterfaces(in *sdk.DescribeNetworkInterfacesInput) (*sdk.DescribeNetworkInterfacesOutput, error) {
	got, next, err := list(s, s.st.Interfaces, query{in.NetworkInterfaceIds, in.Filters, in.MaxResults, in.NextToken},
		lister[sdk.NetworkInterface]{"InvalidNetworkInterfaceID.NotFound", "networkInterface ID", interfaceField})
	for _, n := range got {
		n.TagSet = s.tagList(str(n.NetworkInterfaceId))
		n.PrivateIpAddresses = []*sdk.NetworkInterfacePrivateIpAddress{{
			Primary: new(true), PrivateIpAddress: n.PrivateIpAddress, PrivateDnsName: n.PrivateDnsName, Association: n.Association,
		}}
	}
	return &sdk.DescribeNetworkInterfacesOutput{NetworkInterfaces: got, NextToken: next}, err
}

func (s *Service) modifyInterface(in *sdk.ModifyNetworkInterfaceAttributeInput) (*sdk.ModifyNetworkInterfaceAttributeOutput, error) {
	n := s.st.Interfaces[str(in.NetworkInterfaceId)]
	if n == nil {
		return nil, notFound(str(in.NetworkInterfaceId))
	}
	if *n.RequesterManaged {
		return nil, wire.Errorf("OperationNotPermitted", "You do not have permission to modify '%s'", str(n.NetworkInterfaceId))
	}
	if len(in.Groups) > 0 {
		groups, err := s.groupsOf(str(n.VpcId), strs(in.Groups))
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

func (s *Service) deleteInterface(in *sdk.DeleteNetworkInterfaceInput) (*sdk.DeleteNetworkInterfaceOutput, error) {
	n := s.st.Interfaces[str(in.NetworkInterfaceId)]
	if n == nil {
		return nil, notFound(str(in.NetworkInterfaceId))
	}
	if str(n.Status) != sdk.NetworkInterfaceStatusAvailable {
		return nil, wire.Errorf("InvalidParameterValue", "Network interface '%s' is currently in use.", str(n.NetworkInterfaceId))
	}
	s.dropInterface(str(n.NetworkInterfaceId))
	return &sdk.DeleteNetworkInterfaceOutput{}, nil
}

// createInterface makes an interface that is attached to nothing.
func (s *Service) createInterface(in *sdk.CreateNetworkInterfaceInput) (*sdk.CreateNetworkInterfaceOutput, error) {
	sub, err := s.subnet(in.SubnetId)
	if err != nil {
		return nil, err
	}
	tags, err := tagSpec(in.TagSpecifications, "network-interface")
	if err != nil {
		return nil, err
	}
	n, err := s.newInterface(interfaceSpec{
		subnet: sub, kind: "interface", description: str(in.Description), groups: strs(in.Groups), want: str(in.PrivateIpAddress),
	})
	if err != nil {
		return nil, err
	}
	n.Attachment, n.Status = nil, new(sdk.NetworkInterfaceStatusAvailable)
	s.setTags(str(n.NetworkInterfaceId), tags)
	n.TagSet = s.tagList(str(n.NetworkInterfaceId))
	return &sdk.CreateNetworkInterfaceOutput{NetworkInterface: n}, nil
}

// ServiceInterface is an interface that another service wants in a subnet, such as a load balancer's.
type ServiceInterface struct {
	ID           string // set by [Service.AddInterfaces]
	Addr         netip.Addr
	Subnet, VPC  string
	Zone         string
	Description  string
	Groups       []string
	AllocationID string     // elastic IP to tie to it
	Want         netip.Addr // private address; the zero value for any
}

// AddInterfaces makes interfaces for a load balancer, all or none, and fills in what they became.
func (s *Service) AddInterfaces(specs []ServiceInterface) ([]ServiceInterface, error) {
	out := slices.Clone(specs)
	err := s.locked(func() error {
		var made []string
		for i := range out {
			n, err := s.addInterface(&out[i])
			if err != nil {
				for _, id := range made {
					s.dropInterface(id)
				}
				return err
			}
			made = append(made, str(n.NetworkInterfaceId))
		}
		s.changed()
		return nil
	})
	return out, err
}

func (s *Service) addInterface(f *ServiceInterface) (*sdk.NetworkInterface, error) {
	sub, err := s.subnet(&f.Subnet)
	if err != nil {
		return nil, err
	}
	want := ""
	if f.Want.IsValid() {
		want = f.Want.String()
	}
	var addr *sdk.Address
	if f.AllocationID != "" {
		if addr, err = s.address(&f.AllocationID); err != nil {
			return nil, err
		}
		if addr.AssociationId != nil {
			return nil, wire.Errorf("Resource.AlreadyAssociated", "resource %s is already associated", f.AllocationID)
		}
	}
	n, err := s.newInterface(interfaceSpec{
		subnet: sub, kind: "network_load_balancer", description: f.Description, requester: "amazon-elb", managed: true, groups: f.Groups, want: want,
	})
	if err != nil {
		return nil, err
	}
	if addr != nil {
		s.bind(addr, n)
	}
	f.ID, f.Zone, f.VPC = str(n.NetworkInterfaceId), str(n.AvailabilityZone), str(n.VpcId)
	f.Addr = netip.MustParseAddr(str(n.PrivateIpAddress))
	return n, nil
}

// DropInterfaces removes interfaces that AddInterfaces made.
func (s *Service) DropInterfaces(ids ...string) error {
	return s.locked(func() error {
		for _, id := range ids {
			s.dropInterface(id)
		}
		s.changed()
		return nil
	})
}

// SetInterfaceGroups changes the security groups of interfaces that AddInterfaces made.
func (s *Service) SetInterfaceGroups(groups []string, ids ...string) error {
	return s.locked(func() error {
		for _, id := range ids {
			n := s.st.Interfaces[id]
			if n == nil {
				return notFound(id)
			}
			got, err := s.groupsOf(str(n.VpcId), groups)
			if err != nil {
				return err
			}
			n.Groups = got
		}
		s.changed()
		return nil
	})
}

// Place is where a subnet lies.
type Place struct {
	Subnet, VPC, Zone string
	Gateway           bool // the VPC has an internet gateway
}

// Places says where subnets lie.
func (s *Service) Places(subnets ...string) ([]Place, error) {
	var out []Place
	err := s.locked(func() error {
		for _, id := range subnets {
			n, err := s.subnet(&id)
			if err != nil {
				return err
			}
			out = append(out, Place{id, str(n.VpcId), str(n.AvailabilityZone), s.internetOf(str(n.VpcId)) != nil})
		}
		return nil
	})
	return out, err
}
