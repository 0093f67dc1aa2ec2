// SPDX-License-Identifier: Apache-2.0

package elbv2

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
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

func (s *Service) loadBalancerOps() []wire.Operation {
	return []wire.Operation{
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

// encodeRequest returns a request as JSON. Two requests with the same result have the same settings.
func encodeRequest(in any) string {
	b, err := json.Marshal(in)
	if err != nil {
		return err.Error()
	}

	return string(b)
}

// sortTags sorts the tags of a request. Two requests that differ only in the order of their tags are the same to AWS,
// and clients that keep tags in a map send them in any order.
func sortTags(tags []*sdk.Tag) {
	slices.SortFunc(tags, func(a, b *sdk.Tag) int {
		return cmp.Compare(sdkshape.String(a.Key), sdkshape.String(b.Key))
	})
}

// validateName rejects names that AWS rejects. kind names the resource in the error, such as "load balancer".
func validateName(name, kind string) error {
	switch {
	case !regexp.MustCompile(`^[a-zA-Z0-9-]{1,32}$`).MatchString(name):
		return newValidationError("The %s name '%s' must be 1 to 32 letters, digits and hyphens", kind, name)
	case strings.HasPrefix(name, "-"), strings.HasSuffix(name, "-"):
		return newValidationError("The %s name '%s' cannot begin or end with a hyphen(-)", kind, name)
	case strings.HasPrefix(name, "internal-"):
		return newValidationError("The %s name '%s' cannot begin with 'internal-'", kind, name)
	}

	return nil
}

// validateLoadBalancer checks a request as far as that needs no state.
func validateLoadBalancer(in *sdk.CreateLoadBalancerInput, name, scheme string) error {
	if err := validateName(name, "load balancer"); err != nil {
		return err
	}

	if sdkshape.String(in.Type) != sdk.LoadBalancerTypeEnumNetwork {
		return newErrorf(
			codeInvalidConfigurationRequest,
			"This region has load balancers of type network only, not '%s'",
			cmp.Or(sdkshape.String(in.Type), sdk.LoadBalancerTypeEnumApplication), // AWS's default
		)
	}

	if scheme != sdk.LoadBalancerSchemeEnumInternetFacing && scheme != sdk.LoadBalancerSchemeEnumInternal {
		return newValidationError(
			"1 validation error detected: Value '%s' at 'scheme' failed to satisfy constraint: "+
				"[internet-facing, internal]",
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

	if err := checkIPv4(in.IpAddressType); err != nil {
		return nil, err
	}

	tags, err := parseTags(in.Tags)
	if err != nil {
		return nil, err
	}

	sortTags(in.Tags)
	if old := s.findBalancerByName(name); old != nil {
		if old.Request != encodeRequest(in) {
			return nil, newErrorf(
				codeDuplicateLoadBalancerName,
				"A load balancer with the same name '%s' exists, but with different settings",
				name,
			)
		}

		return &sdk.CreateLoadBalancerOutput{LoadBalancers: []*sdk.LoadBalancer{old.Shape}}, nil
	}

	if len(s.st.Balancers) >= s.cfg.MaxBalancers {
		return nil, newErrorf(
			codeTooManyLoadBalancers,
			"The maximum number of load balancers has been reached",
		)
	}

	wanted, placements, err := s.resolveSubnets(in.Subnets, in.SubnetMappings)
	if err != nil {
		return nil, err
	}

	if scheme == sdk.LoadBalancerSchemeEnumInternetFacing && !placements[0].HasInternetGateway {
		return nil, newErrorf(
			codeInvalidSubnet,
			"VPC %s has no internet gateway",
			placements[0].VPC,
		)
	}

	b, err := s.newLoadBalancer(name, scheme, in, wanted)
	if err != nil {
		return nil, err
	}

	arn := sdkshape.String(b.Shape.LoadBalancerArn)
	s.st.Balancers[arn] = b
	s.setTags(arn, tags)
	s.unseen.Track(arn, balancerPrefix+name)

	return &sdk.CreateLoadBalancerOutput{LoadBalancers: []*sdk.LoadBalancer{b.Shape}}, nil
}

// newLoadBalancer creates a load balancer with its network interfaces. The caller adds it to the state.
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

	created, err := s.cfg.Cloud.CreateManagedInterfaces(wanted)
	if err != nil {
		return nil, translateEC2Error(err)
	}

	now := s.cfg.Now()
	b := &loadBalancer{
		Interfaces: created,
		Ready:      now.Add(s.provisioningDelay("load-balancer")),
		Request:    encodeRequest(in),
		Attributes: initialValues(balancerAttributes()),
		Shape: &sdk.LoadBalancer{
			LoadBalancerArn:       new(s.resourceARN("loadbalancer/net/" + name + "/" + id)),
			LoadBalancerName:      new(name),
			Scheme:                new(scheme),
			Type:                  new(sdk.LoadBalancerTypeEnumNetwork),
			VpcId:                 new(created[0].VPC),
			CreatedTime:           new(now.UTC()),
			IpAddressType:         new("ipv4"),
			CanonicalHostedZoneId: new("Z26RNL4JYFTOTI"),
			SecurityGroups:        in.SecurityGroups,
			State:                 &sdk.LoadBalancerState{Code: new(sdk.LoadBalancerStateEnumProvisioning)},
			DNSName:               new(fmt.Sprintf("%s-%s.elb.%s.amazonaws.com", name, id, s.cfg.Region)),
		},
	}
	if scheme == sdk.LoadBalancerSchemeEnumInternetFacing {
		// The host's resolver does not know the region's names, so the DNS name is the address itself.
		b.Public = s.allocateLoopback()
		b.Shape.DNSName = new(hostDNSName(b.Public, in.Tags))
	}

	s.updateZones(b)

	return b, nil
}

// tagService has the namespace and name of the Service of Kubernetes that a load balancer is for. The cloud controller
// manager sets it.
const tagService = "kubernetes.io/service-name"

// hostDNSName returns the DNS name of an internet-facing load balancer with a loopback address. Kubernetes refuses an
// address as the host name of a Service, so the load balancer of a Service gets the form with one dot, such as
// 127.4194305 for 127.64.0.1: every resolver of the C library and every browser reads it as the address.
func hostDNSName(loopback string, tags []*sdk.Tag) string {
	isService := func(t *sdk.Tag) bool { return sdkshape.String(t.Key) == tagService }
	if !slices.ContainsFunc(tags, isService) {
		return loopback
	}

	bytes := netip.MustParseAddr(loopback).As4()
	network := bytes[0]
	bytes[0] = 0

	return fmt.Sprintf("%d.%d", network, binary.BigEndian.Uint32(bytes[:]))
}

// allocateLoopback returns the lowest free loopback address for an internet-facing load balancer.
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

// translateEC2Error gives a refusal of EC2 the code that Elastic Load Balancing uses. It returns any other
// error, such as a save that failed, as it is: the client sees an internal error.
func translateEC2Error(err error) error {
	refusal, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return err
	}

	code := map[string]errorCode{
		"InvalidGroup.NotFound":             codeInvalidSecurityGroup,
		"InvalidAllocationID.NotFound":      codeAllocationIDNotFound,
		"InsufficientFreeAddressesInSubnet": codeInvalidSubnet,
		"InvalidSubnetID.NotFound":          codeSubnetNotFound,
	}[refusal.Code]

	return newErrorf(cmp.Or(code, codeInvalidConfigurationRequest), "%s", refusal.Error())
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
		return nil, newErrorf(
			codeLoadBalancerNotFound,
			"Load balancer '%s' not found",
			sdkshape.String(arn),
		)
	}

	return b, nil
}

// deleteLoadBalancer deletes a load balancer and its listeners. As in AWS, it succeeds if the load balancer
// does not exist.
func (s *Service) deleteLoadBalancer(in *sdk.DeleteLoadBalancerInput) (*sdk.DeleteLoadBalancerOutput, error) {
	arn := sdkshape.String(in.LoadBalancerArn)
	b := s.st.Balancers[arn]
	if b == nil {
		return &sdk.DeleteLoadBalancerOutput{}, nil
	}

	if b.Attributes[keyDeletionProtection] == valueTrue {
		return nil, newErrorf(
			codeOperationNotPermitted,
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

	s.st.Deleted = append(s.st.Deleted, deletedBalancer{
		At:  s.cfg.Now().Add(s.provisioningDelay("load-balancer-deletion")),
		IDs: ids,
	})
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
			return nil, newErrorf(codeLoadBalancerNotFound, "Load balancers '[%s]' not found", name)
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
		return nil, newErrorf(
			codeInvalidConfigurationRequest,
			"A network load balancer that was created without security groups cannot have any, "+
				"and one that was created with them needs at least one",
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

// checkIPv4 refuses address types other than ipv4.
func checkIPv4(kind *string) error {
	if v := sdkshape.String(kind); v != "" && v != sdk.IpAddressTypeIpv4 {
		return newErrorf(
			codeNotImplemented,
			"This region does not implement the parameter IpAddressType %s",
			v,
		)
	}

	return nil
}

func (s *Service) setIPAddressType(in *sdk.SetIpAddressTypeInput) (*sdk.SetIpAddressTypeOutput, error) {
	b, err := s.findLoadBalancer(in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}

	if sdkshape.String(in.IpAddressType) != "ipv4" {
		return nil, newErrorf(codeInvalidConfigurationRequest, "This region has no IPv6")
	}

	return &sdk.SetIpAddressTypeOutput{IpAddressType: b.Shape.IpAddressType}, nil
}
