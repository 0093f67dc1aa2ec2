// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/route53"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/unmanaged"
)

// vpcAPI reads an unmanaged VPC and the resources in it.
type vpcAPI interface {
	ec2.DescribeVpcsAPIClient
	DescribeVpcAttribute(
		context.Context,
		*ec2.DescribeVpcAttributeInput,
		...func(*ec2.Options),
	) (*ec2.DescribeVpcAttributeOutput, error)
	ec2.DescribeInternetGatewaysAPIClient
	ec2.DescribeSubnetsAPIClient
	ec2.DescribeRouteTablesAPIClient
	egressAPI
}

type egressAPI interface {
	ec2.DescribeNatGatewaysAPIClient
	ec2.DescribeSecurityGroupsAPIClient
	DescribeAddresses(
		context.Context,
		*ec2.DescribeAddressesInput,
		...func(*ec2.Options),
	) (*ec2.DescribeAddressesOutput, error)
}

type profileAPI interface {
	iam.GetInstanceProfileAPIClient
}

type keyAPI interface {
	DescribeKey(context.Context, *kms.DescribeKeyInput, ...func(*kms.Options)) (*kms.DescribeKeyOutput, error)
}

// ReadUnmanaged returns facts about the resources that the manifest of a cluster names by their
// ids: VPC, subnets, peers, hosted zone, instance profiles and KMS key. It leaves out resources
// that do not exist. It changes nothing.
func ReadUnmanaged(
	ctx context.Context,
	cfg aws.Config,
	c v1alpha1.Cluster,
	owns OwnsFunc,
) (unmanaged.Facts, error) {
	f := unmanaged.Facts{
		Subnets:             map[string]unmanaged.Subnet{},
		VPCByResource:       map[string]string{},
		AddressAssociations: map[string]string{},
		ProfileRoles:        map[string]string{},
		ProfileTrust:        map[string][]string{},
		KeyStates:           map[string]string{},
	}
	if c.Spec.Networking.NetworkID != "" {
		if err := readUnmanagedNetwork(ctx, ec2.NewFromConfig(cfg), c.Spec.Networking, &f); err != nil {
			return f, err
		}
	}

	if err := readPeerVPCs(ctx, ec2.NewFromConfig(cfg), c, owns, &f); err != nil {
		return f, err
	}

	if err := readUnmanagedZone(ctx, route53.NewFromConfig(cfg), c, &f); err != nil {
		return f, err
	}

	p := c.Spec.CloudProvider.AWS

	for _, name := range []string{p.InstanceProfiles.ControlPlane, p.InstanceProfiles.Worker} {
		if err := readProfileRole(ctx, iam.NewFromConfig(cfg), name, &f); err != nil {
			return f, err
		}
	}

	return f, readKeyState(ctx, kms.NewFromConfig(cfg), p.KMSKeyARN, &f)
}

// readUnmanagedNetwork reads the VPC that the manifest names, if it exists.
func readUnmanagedNetwork(
	ctx context.Context,
	api vpcAPI,
	n v1alpha1.Networking,
	f *unmanaged.Facts,
) error {
	vpcs, err := api.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{Filters: driver.NewFilters("vpc-id", n.NetworkID)})
	if err != nil {
		return transport.Wrap(err, "describe %s", n.NetworkID)
	}

	if len(vpcs.Vpcs) == 0 {
		return nil
	}

	for _, a := range vpcs.Vpcs[0].CidrBlockAssociationSet {
		f.CIDRs = append(f.CIDRs, aws.ToString(a.CidrBlock))
	}

	steps := []func() error{
		func() error { return readDNSSupport(ctx, api, n.NetworkID, f) },
		func() error { return readInternetGateways(ctx, api, n.NetworkID, f) },
		func() error { return readUnmanagedSubnets(ctx, api, n, f) },
		func() error { return readGatewayRoutes(ctx, api, n.NetworkID, f) },
		func() error { return readNATsAndGroups(ctx, api, n.NetworkID, f) },
		func() error { return readElasticIPs(ctx, api, n, f) },
	}

	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}

	return nil
}

// readDNSSupport reads the DNS attributes of a VPC.
func readDNSSupport(ctx context.Context, api vpcAPI, vpc string, f *unmanaged.Facts) error {
	names, err := api.DescribeVpcAttribute(
		ctx,
		&ec2.DescribeVpcAttributeInput{VpcId: &vpc, Attribute: ec2types.VpcAttributeNameEnableDnsHostnames},
	)
	if err != nil {
		return transport.Wrap(err, "read the DNS attributes of %s", vpc)
	}

	support, err := api.DescribeVpcAttribute(
		ctx,
		&ec2.DescribeVpcAttributeInput{VpcId: &vpc, Attribute: ec2types.VpcAttributeNameEnableDnsSupport},
	)
	if err != nil {
		return transport.Wrap(err, "read the DNS attributes of %s", vpc)
	}

	f.DNSHostnames = names.EnableDnsHostnames != nil && aws.ToBool(names.EnableDnsHostnames.Value)
	f.DNSSupport = support.EnableDnsSupport != nil && aws.ToBool(support.EnableDnsSupport.Value)

	return nil
}

func readInternetGateways(ctx context.Context, api vpcAPI, vpc string, f *unmanaged.Facts) error {
	pages := ec2.NewDescribeInternetGatewaysPaginator(
		api,
		&ec2.DescribeInternetGatewaysInput{Filters: driver.NewFilters("attachment.vpc-id", vpc)},
	)
	gateways, err := transport.CollectPages(
		ctx,
		pages,
		func(p *ec2.DescribeInternetGatewaysOutput) []ec2types.InternetGateway { return p.InternetGateways },
	)
	if err != nil {
		return transport.Wrap(err, "list the internet gateways of %s", vpc)
	}

	for _, g := range gateways {
		f.InternetGateways = append(f.InternetGateways, aws.ToString(g.InternetGatewayId))
	}

	return nil
}

// readUnmanagedSubnets reads all subnets of the VPC, and those that the manifest names, in whatever
// VPC they are.
func readUnmanagedSubnets(
	ctx context.Context,
	api vpcAPI,
	n v1alpha1.Networking,
	f *unmanaged.Facts,
) error {
	queries := [][]ec2types.Filter{driver.NewFilters("vpc-id", n.NetworkID)}
	var ids []string
	for _, s := range n.Subnets {
		if s.ID != "" {
			ids = append(ids, s.ID)
		}
	}

	if len(ids) > 0 {
		queries = append(queries, driver.NewFilters("subnet-id", ids...))
	}

	for _, filters := range queries {
		pages := ec2.NewDescribeSubnetsPaginator(api, &ec2.DescribeSubnetsInput{Filters: filters})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return transport.Wrap(err, "list the subnets of %s", n.NetworkID)
			}

			for _, s := range page.Subnets {
				f.Subnets[aws.ToString(s.SubnetId)] = unmanaged.Subnet{
					VPC:             aws.ToString(s.VpcId),
					Zone:            aws.ToString(s.AvailabilityZone),
					CIDR:            aws.ToString(s.CidrBlock),
					Cluster:         driver.FromEC2Tags(s.Tags)[awskind.TagCluster],
					PublicAddresses: aws.ToBool(s.MapPublicIpOnLaunch),
				}
			}
		}
	}

	return nil
}

// readGatewayRoutes reads the routes of the VPC to peerings, transit gateways and virtual private
// gateways.
func readGatewayRoutes(ctx context.Context, api vpcAPI, vpc string, f *unmanaged.Facts) error {
	pages := ec2.NewDescribeRouteTablesPaginator(
		api,
		&ec2.DescribeRouteTablesInput{Filters: driver.NewFilters("vpc-id", vpc)},
	)

	seen := map[unmanaged.OwnedRange]bool{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the route tables of %s", vpc)
		}

		for _, t := range page.RouteTables {
			for _, r := range t.Routes {
				route := unmanaged.OwnedRange{CIDR: aws.ToString(r.DestinationCidrBlock), Owner: routeGateway(r)}
				if route.Owner != "" && route.CIDR != "" && !seen[route] {
					seen[route] = true
					f.Routes = append(f.Routes, route)
				}
			}
		}
	}

	return nil
}

// routeGateway returns the id of the peering, transit gateway or virtual private gateway of a
// route; empty for other routes.
func routeGateway(r ec2types.Route) string {
	owner := aws.ToString(r.VpcPeeringConnectionId) + aws.ToString(r.TransitGatewayId)
	if g := aws.ToString(r.GatewayId); strings.HasPrefix(g, "vgw-") {
		owner += g
	}

	return owner
}

// readNATsAndGroups reads the available NAT gateways and the security groups of the VPC.
func readNATsAndGroups(ctx context.Context, api vpcAPI, vpc string, f *unmanaged.Facts) error {
	pages := ec2.NewDescribeNatGatewaysPaginator(
		api,
		&ec2.DescribeNatGatewaysInput{Filter: driver.NewFilters("vpc-id", vpc)},
	)
	gateways, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeNatGatewaysOutput) []ec2types.NatGateway {
		return p.NatGateways
	})
	if err != nil {
		return transport.Wrap(err, "list the NAT gateways of %s", vpc)
	}

	for _, g := range gateways {
		if g.State == ec2types.NatGatewayStateAvailable {
			f.VPCByResource[aws.ToString(g.NatGatewayId)] = vpc
		}
	}

	groups := ec2.NewDescribeSecurityGroupsPaginator(
		api,
		&ec2.DescribeSecurityGroupsInput{Filters: driver.NewFilters("vpc-id", vpc)},
	)

	for groups.HasMorePages() {
		page, err := groups.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the security groups of %s", vpc)
		}

		for _, g := range page.SecurityGroups {
			f.VPCByResource[aws.ToString(g.GroupId)] = vpc
		}
	}

	return nil
}

// readElasticIPs reads the elastic IP addresses that the manifest names as the egress of subnets.
func readElasticIPs(
	ctx context.Context,
	api vpcAPI,
	n v1alpha1.Networking,
	f *unmanaged.Facts,
) error {
	var ids []string
	for _, s := range n.Subnets {
		if strings.HasPrefix(s.Egress, "eipalloc-") {
			ids = append(ids, s.Egress)
		}
	}

	if len(ids) == 0 {
		return nil
	}

	out, err := api.DescribeAddresses(
		ctx,
		&ec2.DescribeAddressesInput{Filters: driver.NewFilters("allocation-id", ids...)},
	)
	if err != nil {
		return transport.Wrap(err, "describe the elastic IP addresses of the NAT gateways")
	}

	for _, a := range out.Addresses {
		f.AddressAssociations[aws.ToString(a.AllocationId)] = aws.ToString(a.AssociationId)
	}

	return nil
}

// readProfileRole reads the role of an instance profile, and what can assume it.
func readProfileRole(ctx context.Context, api profileAPI, name string, f *unmanaged.Facts) error {
	if name == "" {
		return nil
	}

	out, err := api.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
	if err = transport.Wrap(err, "read instance profile %s", name); plan.ErrorClassOf(err) == plan.NotFound {
		return nil
	}

	if err != nil || len(out.InstanceProfile.Roles) == 0 {
		return err
	}

	role := out.InstanceProfile.Roles[0]
	f.ProfileRoles[name] = aws.ToString(role.RoleName)
	document, err := url.PathUnescape(aws.ToString(role.AssumeRolePolicyDocument)) // RFC 3986
	if err == nil {
		f.ProfileTrust[name], err = unmanaged.OtherPrincipals(document)
	}

	if err != nil {
		return fmt.Errorf(
			"role %s of instance profile %s: %w",
			aws.ToString(role.RoleName),
			name,
			err,
		)
	}

	return nil
}

// readKeyState reads the state of a KMS key.
func readKeyState(ctx context.Context, api keyAPI, arn string, f *unmanaged.Facts) error {
	if arn == "" {
		return nil
	}

	out, err := api.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &arn})
	if err = transport.Wrap(err, "read key %s", arn); plan.ErrorClassOf(err) == plan.NotFound {
		return nil
	}

	if err != nil {
		return err
	}

	if out.KeyMetadata == nil {
		return errors.New("read key " + arn + ": the response has no metadata")
	}

	f.KeyStates[arn] = string(out.KeyMetadata.KeyState)

	return nil
}
