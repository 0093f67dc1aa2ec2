// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"net/netip"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// ManagedInterface is a network interface that another service manages, such as a load balancer's.
type ManagedInterface struct {
	ID           string     // set by [Service.CreateManagedInterfaces]
	Addr         netip.Addr // private address, set by [Service.CreateManagedInterfaces]
	Subnet       string     // id of the subnet
	VPC          string     // set by [Service.CreateManagedInterfaces]
	Zone         string     // set by [Service.CreateManagedInterfaces]
	Description  string     // shown by DescribeNetworkInterfaces
	Groups       []string   // ids of security groups
	AllocationID string     // Elastic IP address to associate; empty for none
	Want         netip.Addr // private address to use; the zero value for any
}

// CreateManagedInterfaces creates network interfaces for a load balancer, all or none, and returns the specs
// with ID, Addr, VPC and Zone set.
func (s *Service) CreateManagedInterfaces(specs []ManagedInterface) ([]ManagedInterface, error) {
	out := slices.Clone(specs)
	err := s.withLock(func() error {
		var created []string
		for i := range out {
			n, err := networkInterfaceHandlers{s}.createManagedInterface(&out[i])
			if err != nil {
				for _, id := range created {
					s.st.removeInterface(id)
				}

				return err
			}

			created = append(created, str(n.NetworkInterfaceId))
		}

		s.markChanged()

		return nil
	})

	return out, err
}

func (s networkInterfaceHandlers) createManagedInterface(f *ManagedInterface) (*sdk.NetworkInterface, error) {
	sub, err := s.findVisibleSubnet(f.Subnet)
	if err != nil {
		return nil, err
	}

	for _, id := range f.Groups {
		if s.isUnseen(id) {
			return nil, notFound(id)
		}
	}

	want := ""
	if f.Want.IsValid() {
		want = f.Want.String()
	}

	var addr *sdk.Address
	if f.AllocationID != "" {
		if addr, err = s.st.findAddress(&f.AllocationID); err != nil {
			return nil, err
		}

		if addr.AssociationId != nil {
			return nil, newErrorf(
				codeResourceAlreadyAssociated,
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
		addressHandlers(s).setAddressAssociation(addr, n)
	}

	f.ID = str(n.NetworkInterfaceId)
	f.Zone = str(n.AvailabilityZone)
	f.VPC = str(n.VpcId)
	f.Addr = netip.MustParseAddr(str(n.PrivateIpAddress))

	return n, nil
}

// DeleteManagedInterfaces deletes network interfaces of [Service.CreateManagedInterfaces].
func (s *Service) DeleteManagedInterfaces(ids ...string) error {
	return s.withLock(func() error {
		for _, id := range ids {
			s.st.removeInterface(id)
		}

		s.markChanged()
		return nil
	})
}

// SetManagedInterfaceGroups sets the security groups of network interfaces of
// [Service.CreateManagedInterfaces].
func (s *Service) SetManagedInterfaceGroups(groups []string, ids ...string) error {
	return s.withLock(func() error {
		for _, id := range ids {
			n := s.st.Interfaces[id]
			if n == nil {
				return notFound(id)
			}

			got, err := s.st.resolveSecurityGroups(str(n.VpcId), groups, s.cfg.Quotas.GroupsPerENI)
			if err != nil {
				return err
			}

			n.Groups = got
		}

		s.markChanged()
		return nil
	})
}
