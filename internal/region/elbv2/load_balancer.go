// SPDX-License-Identifier: Apache-2.0

package elbv2

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/elbv2"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) loadBalancerOps() []wire.Op {
	return []wire.Op{
		state.WriteOperation(s.store, "CreateLoadBalancer", s.createLoadBalancer),
		state.WriteOperation(s.store, "DeleteLoadBalancer", s.deleteLoadBalancer),
		state.ReadOperation(s.store, "DescribeLoadBalancers", s.describeLoadBalancers),
		state.ReadOperation(s.store, "DescribeLoadBalancerAttributes", s.describeLoadBalancerAttributes),
		state.WriteOperation(s.store, "ModifyLoadBalancerAttributes", s.modifyLoadBalancerAttributes),
		state.WriteOperation(s.store, "SetSecurityGroups", s.setSecurityGroups),
		state.WriteOperation(s.store, "SetSubnets", s.setSubnets),
		state.WriteOperation(s.store, "SetIpAddressType", s.setIPAddressType),
	}
}

func encodeRequest(in any) string {
	b, err := json.Marshal(in)
	if err != nil {
		return err.Error()
	}

	return string(b)
}

// validateName refuses names that AWS refuses.
func validateName(name, what string) error {
	switch {
	case !regexp.MustCompile(`^[a-zA-Z0-9-]{1,32}$`).MatchString(name):
		return newValidationError("The %s name '%s' must be 1 to 32 letters, digits and hyphens", what, name)
	case strings.HasPrefix(name, "-"), strings.HasSuffix(name, "-"):
		return newValidationError("The %s name '%s' cannot begin or end with a hyphen(-)", what, name)
	case strings.HasPrefix(name, "internal-"):
		return newValidationError("The %s name '%s' cannot begin with 'internal-'", what, name)
	}

	return nil
}

// parseSubnets reads a request's subnets, in either of its two forms.
func parseSubnets(subnets []*string, maps []*sdk.SubnetMapping) ([]ec2.ManagedInterface, error) {
	if len(subnets) > 0 && len(maps) > 0 {
		return nil, newValidationError("You can specify either subnets or subnet mappings")
	}

	var out []ec2.ManagedInterface
	for _, id := range sdkshape.Strings(subnets) {
		out = append(out, ec2.ManagedInterface{Subnet: id})
	}

	for _, m := range maps {
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

// resolveSubnets are the subnets that a request wants the load balancer in.
func (s *Service) resolveSubnets(
	subnets []*string,
	maps []*sdk.SubnetMapping,
) ([]ec2.ManagedInterface, []ec2.SubnetPlacement, error) {
	out, err := parseSubnets(subnets, maps)
	if err != nil {
		return nil, nil, err
	}

	var ids []string
	for _, f := range out {
		ids = append(ids, f.Subnet)
	}

	places, err := s.cfg.Cloud.SubnetPlacements(ids...)
	if err != nil {
		return nil, nil, wire.Errorf("SubnetNotFound", "%s", err.Error())
	}

	zones := map[string]bool{}

	for _, p := range places {
		switch {
		case p.VPC != places[0].VPC:
			return nil, nil, wire.Errorf(
				"InvalidConfigurationRequest",
				"All subnets must belong to the same VPC: '%s'",
				places[0].VPC,
			)

		case zones[p.Zone]:
			return nil, nil, wire.Errorf(
				"InvalidConfigurationRequest",
				"A load balancer cannot be attached to multiple subnets in the same Availability Zone",
			)
		}

		zones[p.Zone] = true
	}

	return out, places, nil
}

// validateLoadBalancer refuses what no state has to be known for.
func validateLoadBalancer(in *sdk.CreateLoadBalancerInput, name, scheme string) error {
	if err := validateName(name, "load balancer"); err != nil {
		return err
	}

	if sdkshape.String(in.Type) != sdk.LoadBalancerTypeEnumNetwork {
		return wire.Errorf(
			"InvalidConfigurationRequest",
			"This region has load balancers of type network only, not '%s'",
			sdkshape.String(in.Type),
		)
	}

	if scheme != sdk.LoadBalancerSchemeEnumInternetFacing && scheme != sdk.LoadBalancerSchemeEnumInternal {
		return newValidationError(
			"1 validation error detected: Value '%s' at 'scheme' failed to satisfy constraint: [internet-facing, internal]",
			scheme,
		)
	}

	return nil
}

func (s *Service) createLoadBalancer(in *sdk.CreateLoadBalancerInput) (*sdk.CreateLoadBalancerOutput, error) {
	name := sdkshape.String(in.Name)
	scheme := sdkshape.String(stringOrDefault(in.Scheme, sdk.LoadBalancerSchemeEnumInternetFacing))
	if err := validateLoadBalancer(in, name, scheme); err != nil {
		return nil, err
	}

	tags, err := parseTags(in.Tags)
	if err != nil {
		return nil, err
	}

	if old := s.findBalancerByName(name); old != nil {
		if old.Request != encodeRequest(in) {
			return nil, wire.Errorf(
				"DuplicateLoadBalancerName",
				"A load balancer with the same name '%s' exists, but with different settings",
				name,
			)
		}

		return &sdk.CreateLoadBalancerOutput{LoadBalancers: []*sdk.LoadBalancer{old.Shape}}, nil
	}

	if len(s.st.Balancers) >= s.cfg.MaxBalancers {
		return nil, wire.Errorf(
			"TooManyLoadBalancers",
			"The maximum number of load balancers has been reached",
		)
	}

	wanted, places, err := s.resolveSubnets(in.Subnets, in.SubnetMappings)
	if err != nil {
		return nil, err
	}

	if scheme == sdk.LoadBalancerSchemeEnumInternetFacing && !places[0].HasInternetGateway {
		return nil, wire.Errorf("InvalidSubnet", "VPC %s has no internet gateway", places[0].VPC)
	}

	b, err := s.newLoadBalancer(name, scheme, in, wanted)
	if err != nil {
		return nil, err
	}

	arn := sdkshape.String(b.Shape.LoadBalancerArn)
	s.st.Balancers[arn] = b
	s.setTags(arn, tags)

	return &sdk.CreateLoadBalancerOutput{LoadBalancers: []*sdk.LoadBalancer{b.Shape}}, nil
}

func (s *Service) newLoadBalancer(
	name, scheme string,
	in *sdk.CreateLoadBalancerInput,
	wanted []ec2.ManagedInterface,
) (*loadBalancer, error) {
	id := sdkshape.RandomHex(s.cfg.Rand, 16)
	for i := range wanted {
		wanted[i].Description = fmt.Sprintf("ELB net/%s/%s", name, id)
		wanted[i].Groups = sdkshape.Strings(in.SecurityGroups)
	}

	made, err := s.cfg.Cloud.CreateManagedInterfaces(wanted)
	if err != nil {
		return nil, translateEC2Error(err)
	}

	now := s.cfg.Now()
	b := &loadBalancer{
		Interfaces: made,
		Ready:      now.Add(s.provisioningDelay("load-balancer")),
		Request:    encodeRequest(in),
		Attributes: defaultBalancerAttributes(),
		Shape: &sdk.LoadBalancer{
			LoadBalancerArn:       new(s.resourceARN("loadbalancer/net/" + name + "/" + id)),
			LoadBalancerName:      new(name),
			Scheme:                new(scheme),
			Type:                  new(sdk.LoadBalancerTypeEnumNetwork),
			VpcId:                 new(made[0].VPC),
			CreatedTime:           new(now.UTC()),
			IpAddressType:         new("ipv4"),
			CanonicalHostedZoneId: new("Z26RNL4JYFTOTI"),
			SecurityGroups:        in.SecurityGroups,
			State:                 &sdk.LoadBalancerState{Code: new(sdk.LoadBalancerStateEnumProvisioning)},
			DNSName:               new(fmt.Sprintf("%s-%s.elb.%s.amazonaws.com", name, id, s.cfg.Region)),
		},
	}
	if scheme == sdk.LoadBalancerSchemeEnumInternetFacing {
		// A name that the host's resolver would have to know is no use on the host: the address is the name.
		b.Public = s.allocateLoopback()
		b.Shape.DNSName = new(b.Public)
	}

	s.updateZones(b)

	return b, nil
}

// allocateLoopback is the lowest free address for an internet-facing load balancer.
func (s *Service) allocateLoopback() string {
	used := map[string]bool{}
	for _, b := range s.st.Balancers {
		used[b.Public] = true
	}

	a := s.cfg.Loopback
	for used[a.String()] {
		a = a.Next()
	}

	return a.String()
}

// translateEC2Error gives an error of EC2 the code that load balancing uses.
func translateEC2Error(err error) error {
	text := err.Error()
	for ours, theirs := range map[string]string{
		"InvalidSecurityGroup": "InvalidGroup.NotFound", "AllocationIdNotFound": "InvalidAllocationID.NotFound",
		"InvalidSubnet": "InsufficientFreeAddressesInSubnet", "SubnetNotFound": "InvalidSubnetID.NotFound",
	} {
		if strings.HasPrefix(text, theirs) {
			return wire.Errorf(ours, "%s", text)
		}
	}

	return wire.Errorf("InvalidConfigurationRequest", "%s", text)
}

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

func (s *Service) findBalancerByName(name string) *loadBalancer {
	for _, b := range s.st.Balancers {
		if sdkshape.String(b.Shape.LoadBalancerName) == name {
			return b
		}
	}

	return nil
}

func (s *Service) findLoadBalancer(arn *string) (*loadBalancer, error) {
	b := s.st.Balancers[sdkshape.String(arn)]
	if b == nil {
		return nil, wire.Errorf("LoadBalancerNotFound", "Load balancer '%s' not found", sdkshape.String(arn))
	}

	return b, nil
}

// deleteLoadBalancer succeeds for one that is not there, as at AWS. Its listeners go with it.
func (s *Service) deleteLoadBalancer(in *sdk.DeleteLoadBalancerInput) (*sdk.DeleteLoadBalancerOutput, error) {
	arn := sdkshape.String(in.LoadBalancerArn)
	b := s.st.Balancers[arn]
	if b == nil {
		return &sdk.DeleteLoadBalancerOutput{}, nil
	}

	if b.Attributes["deletion_protection.enabled"] == "true" {
		return nil, wire.Errorf(
			"OperationNotPermitted",
			"Load balancer '%s' cannot be deleted because deletion protection is enabled",
			arn,
		)
	}

	for id, l := range s.st.Listeners {
		if sdkshape.String(l.LoadBalancerArn) == arn {
			delete(s.st.Listeners, id)
			delete(s.st.Tags, id)
		}
	}

	var ids []string
	for _, f := range b.Interfaces {
		ids = append(ids, f.ID)
	}

	s.st.Ghosts = append(
		s.st.Ghosts,
		deletedBalancer{At: s.cfg.Now().Add(s.provisioningDelay("load-balancer-deletion")), IDs: ids},
	)
	delete(s.st.Tags, arn)
	delete(s.st.Balancers, arn)

	return &sdk.DeleteLoadBalancerOutput{}, nil
}

func (s *Service) describeLoadBalancers(
	in *sdk.DescribeLoadBalancersInput,
) (*sdk.DescribeLoadBalancersOutput, error) {
	arns := sdkshape.Strings(in.LoadBalancerArns)
	for _, name := range sdkshape.Strings(in.Names) {
		b := s.findBalancerByName(name)
		if b == nil {
			return nil, wire.Errorf("LoadBalancerNotFound", "Load balancers '[%s]' not found", name)
		}

		arns = append(arns, sdkshape.String(b.Shape.LoadBalancerArn))
	}

	if len(in.LoadBalancerArns)+len(in.Names) == 0 {
		arns = sdkshape.SortedKeys(s.st.Balancers)
	}

	slices.Sort(arns)
	arns, next, err := paginateKeys(arns, in.PageSize, in.Marker)
	if err != nil {
		return nil, err
	}

	out := &sdk.DescribeLoadBalancersOutput{NextMarker: next, LoadBalancers: []*sdk.LoadBalancer{}}

	for _, arn := range arns {
		b, err := s.findLoadBalancer(&arn)
		if err != nil {
			return nil, err
		}

		out.LoadBalancers = append(out.LoadBalancers, b.Shape)
	}

	return out, nil
}

func (s *Service) setSecurityGroups(in *sdk.SetSecurityGroupsInput) (*sdk.SetSecurityGroupsOutput, error) {
	b, err := s.findLoadBalancer(in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}

	if len(b.Shape.SecurityGroups) == 0 || len(in.SecurityGroups) == 0 {
		return nil, wire.Errorf(
			"InvalidConfigurationRequest",
			"A network load balancer has security groups from its creation on, or never",
		)
	}

	var ids []string
	for _, f := range b.Interfaces {
		ids = append(ids, f.ID)
	}

	if err := s.cfg.Cloud.SetManagedInterfaceGroups(sdkshape.Strings(in.SecurityGroups), ids...); err != nil {
		return nil, translateEC2Error(err)
	}

	b.Shape.SecurityGroups = in.SecurityGroups

	return &sdk.SetSecurityGroupsOutput{SecurityGroupIds: in.SecurityGroups}, nil
}

// setSubnets adds and removes zones. Subnets that stay keep their interfaces and addresses.
func (s *Service) setSubnets(in *sdk.SetSubnetsInput) (*sdk.SetSubnetsOutput, error) {
	b, err := s.findLoadBalancer(in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}

	wanted, places, err := s.resolveSubnets(in.Subnets, in.SubnetMappings)
	if err != nil {
		return nil, err
	}

	if places[0].VPC != sdkshape.String(b.Shape.VpcId) {
		return nil, wire.Errorf(
			"InvalidSubnet",
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

		w.Description, w.Groups = b.Interfaces[0].Description, sdkshape.Strings(b.Shape.SecurityGroups)
		added = append(added, w)
	}

	if added, err = s.cfg.Cloud.CreateManagedInterfaces(added); err != nil {
		return nil, translateEC2Error(err)
	}

	var gone []string

	for _, f := range b.Interfaces {
		if !slices.ContainsFunc(kept, func(k ec2.ManagedInterface) bool { return k.ID == f.ID }) {
			gone = append(gone, f.ID)
		}
	}

	if err := s.cfg.Cloud.DeleteManagedInterfaces(gone...); err != nil {
		return nil, translateEC2Error(err)
	}

	b.Interfaces = slices.Concat(kept, added)
	s.updateZones(b)

	return &sdk.SetSubnetsOutput{
		AvailabilityZones: b.Shape.AvailabilityZones,
		IpAddressType:     b.Shape.IpAddressType,
	}, nil
}

func (s *Service) setIPAddressType(in *sdk.SetIpAddressTypeInput) (*sdk.SetIpAddressTypeOutput, error) {
	b, err := s.findLoadBalancer(in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}

	if sdkshape.String(in.IpAddressType) != "ipv4" {
		return nil, wire.Errorf("InvalidConfigurationRequest", "This region has no IPv6")
	}

	return &sdk.SetIpAddressTypeOutput{IpAddressType: b.Shape.IpAddressType}, nil
}
