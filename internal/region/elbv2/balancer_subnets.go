// SPDX-License-Identifier: Apache-2.0

package elbv2

import (
	"net/netip"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/elbv2"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// parseSubnets returns the network interfaces that a request asks for, one a subnet. A request names subnets
// or subnet mappings, not both.
func parseSubnets(subnets []*string, mappings []*sdk.SubnetMapping) ([]ec2.ManagedInterface, error) {
	if len(subnets) > 0 && len(mappings) > 0 {
		return nil, newValidationError("You can specify either subnets or subnet mappings")
	}

	var out []ec2.ManagedInterface
	for _, id := range sdkshape.Strings(subnets) {
		out = append(out, ec2.ManagedInterface{Subnet: id})
	}

	for _, m := range mappings {
		f := ec2.ManagedInterface{
			Subnet:       sdkshape.String(m.SubnetId),
			AllocationID: sdkshape.String(m.AllocationId),
		}
		if m.PrivateIPv4Address != nil {
			a, err := netip.ParseAddr(*m.PrivateIPv4Address)
			if err != nil {
				return nil, newValidationError("The private address '%s' is not valid", *m.PrivateIPv4Address)
			}

			f.Want = a
		}

		out = append(out, f)
	}

	if len(out) == 0 {
		return nil, newValidationError("At least one subnet must be specified")
	}

	return out, nil
}

// resolveSubnets returns the network interfaces that a request asks for, and where their subnets are. It
// checks that the subnets are in one VPC and in different availability zones.
func (s *Service) resolveSubnets(
	subnets []*string,
	mappings []*sdk.SubnetMapping,
) ([]ec2.ManagedInterface, []ec2.SubnetPlacement, error) {
	out, err := parseSubnets(subnets, mappings)
	if err != nil {
		return nil, nil, err
	}

	var ids []string
	for _, f := range out {
		ids = append(ids, f.Subnet)
	}

	placements, err := s.cfg.Cloud.SubnetPlacements(ids...)
	if err != nil {
		return nil, nil, translateEC2Error(err)
	}

	zones := map[string]bool{}

	for _, p := range placements {
		switch {
		case p.VPC != placements[0].VPC:
			return nil, nil, newErrorf(
				codeInvalidConfigurationRequest,
				"All subnets must belong to the same VPC: '%s'",
				placements[0].VPC,
			)

		case zones[p.Zone]:
			return nil, nil, newErrorf(
				codeInvalidConfigurationRequest,
				"A load balancer cannot be attached to multiple subnets in the same Availability Zone",
			)
		}

		zones[p.Zone] = true
	}

	return out, placements, nil
}

// updateZones sets the availability zones of a load balancer's shape from its network interfaces.
func (s *Service) updateZones(b *loadBalancer) {
	b.Shape.AvailabilityZones = nil
	for _, f := range b.Interfaces {
		z := &sdk.AvailabilityZone{
			SubnetId:              new(f.Subnet),
			ZoneName:              new(f.Zone),
			LoadBalancerAddresses: []*sdk.LoadBalancerAddress{},
		}
		if f.AllocationID != "" {
			z.LoadBalancerAddresses = append(
				z.LoadBalancerAddresses,
				&sdk.LoadBalancerAddress{AllocationId: new(f.AllocationID)},
			)
		}

		if f.Want.IsValid() {
			z.LoadBalancerAddresses = append(
				z.LoadBalancerAddresses,
				&sdk.LoadBalancerAddress{PrivateIPv4Address: new(f.Want.String())},
			)
		}

		b.Shape.AvailabilityZones = append(b.Shape.AvailabilityZones, z)
	}
}

// setSubnets adds and removes zones. Subnets that remain keep their interfaces and addresses.
func (s *Service) setSubnets(in *sdk.SetSubnetsInput) (*sdk.SetSubnetsOutput, error) {
	b, err := s.findLoadBalancer(in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}

	wanted, placements, err := s.resolveSubnets(in.Subnets, in.SubnetMappings)
	if err != nil {
		return nil, err
	}

	if placements[0].VPC != sdkshape.String(b.Shape.VpcId) {
		return nil, newErrorf(
			codeInvalidSubnet,
			"The subnets must be in VPC '%s'",
			sdkshape.String(b.Shape.VpcId),
		)
	}

	var kept, added []ec2.ManagedInterface

	for _, w := range wanted {
		at := slices.IndexFunc(
			b.Interfaces,
			func(f ec2.ManagedInterface) bool { return f.Subnet == w.Subnet },
		)
		if at >= 0 {
			kept = append(kept, b.Interfaces[at])
			continue
		}

		w.Description = b.Interfaces[0].Description
		w.Groups = sdkshape.Strings(b.Shape.SecurityGroups)
		added = append(added, w)
	}

	if added, err = s.cfg.Cloud.CreateManagedInterfaces(added); err != nil {
		return nil, translateEC2Error(err)
	}

	var removed []string

	for _, f := range b.Interfaces {
		if !slices.ContainsFunc(kept, func(k ec2.ManagedInterface) bool { return k.ID == f.ID }) {
			removed = append(removed, f.ID)
		}
	}

	if err := s.cfg.Cloud.DeleteManagedInterfaces(removed...); err != nil {
		return nil, translateEC2Error(err)
	}

	b.Interfaces = slices.Concat(kept, added)
	s.updateZones(b)

	return &sdk.SetSubnetsOutput{
		AvailabilityZones: b.Shape.AvailabilityZones,
		IpAddressType:     b.Shape.IpAddressType,
	}, nil
}
