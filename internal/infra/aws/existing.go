// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/route53"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/existing"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// existingAPI is what it takes to look at a VPC that is not ours.
type existingAPI interface {
	DescribeVpcs(context.Context, *ec2.DescribeVpcsInput, ...func(*ec2.Options)) (*ec2.DescribeVpcsOutput, error)
	DescribeVpcAttribute(context.Context, *ec2.DescribeVpcAttributeInput, ...func(*ec2.Options)) (*ec2.DescribeVpcAttributeOutput, error)
	DescribeInternetGateways(context.Context, *ec2.DescribeInternetGatewaysInput, ...func(*ec2.Options)) (*ec2.DescribeInternetGatewaysOutput, error)
	DescribeSubnets(context.Context, *ec2.DescribeSubnetsInput, ...func(*ec2.Options)) (*ec2.DescribeSubnetsOutput, error)
	DescribeRouteTables(context.Context, *ec2.DescribeRouteTablesInput, ...func(*ec2.Options)) (*ec2.DescribeRouteTablesOutput, error)
	existingWaysAPI
}

type existingWaysAPI interface {
	DescribeNatGateways(context.Context, *ec2.DescribeNatGatewaysInput, ...func(*ec2.Options)) (*ec2.DescribeNatGatewaysOutput, error)
	DescribeSecurityGroups(context.Context, *ec2.DescribeSecurityGroupsInput, ...func(*ec2.Options)) (*ec2.DescribeSecurityGroupsOutput, error)
	DescribeAddresses(context.Context, *ec2.DescribeAddressesInput, ...func(*ec2.Options)) (*ec2.DescribeAddressesOutput, error)
}

type existingProfileAPI interface {
	GetInstanceProfile(context.Context, *iam.GetInstanceProfileInput, ...func(*iam.Options)) (*iam.GetInstanceProfileOutput, error)
}

type existingKeyAPI interface {
	DescribeKey(context.Context, *kms.DescribeKeyInput, ...func(*kms.Options)) (*kms.DescribeKeyOutput, error)
}

// ReadExisting looks at what a cluster's manifest names by its id. It changes nothing.
func ReadExisting(ctx context.Context, cfg aws.Config, c v1alpha1.Cluster) (existing.Facts, error) {
	f := existing.Facts{
		Subnets: map[string]existing.Subnet{}, VPCs: map[string]string{}, Addresses: map[string]string{},
		Roles: map[string]string{}, KeyState: map[string]string{},
	}
	if c.Spec.Networking.NetworkID != "" {
		if err := lookAtNetwork(ctx, ec2.NewFromConfig(cfg), c.Spec.Networking, &f); err != nil {
			return f, err
		}
	}
	if err := lookAtPeers(ctx, ec2.NewFromConfig(cfg), c, &f); err != nil {
		return f, err
	}
	if err := lookAtZone(ctx, route53.NewFromConfig(cfg), c, &f); err != nil {
		return f, err
	}
	p := c.Spec.CloudProvider.AWS
	for _, name := range []string{p.InstanceProfiles.ControlPlane, p.InstanceProfiles.Worker} {
		if err := lookAtProfile(ctx, iam.NewFromConfig(cfg), name, &f); err != nil {
			return f, err
		}
	}
	return f, lookAtKey(ctx, kms.NewFromConfig(cfg), p.KMSKeyARN, &f)
}

func lookAtNetwork(ctx context.Context, api existingAPI, n v1alpha1.Networking, f *existing.Facts) error {
	vpcs, err := api.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{Filters: filter("vpc-id", n.NetworkID)})
	if err != nil {
		return wrap(err, "look at %s", n.NetworkID)
	}
	if len(vpcs.Vpcs) == 0 {
		return nil
	}
	for _, a := range vpcs.Vpcs[0].CidrBlockAssociationSet {
		f.CIDRs = append(f.CIDRs, aws.ToString(a.CidrBlock))
	}
	steps := []func() error{
		func() error { return lookAtDNS(ctx, api, n.NetworkID, f) },
		func() error { return lookAtGateways(ctx, api, n.NetworkID, f) },
		func() error { return lookAtSubnets(ctx, api, n, f) },
		func() error { return lookAtRoutes(ctx, api, n.NetworkID, f) },
		func() error { return lookAtNATs(ctx, api, n.NetworkID, f) },
		func() error { return lookAtAddresses(ctx, api, n, f) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func lookAtDNS(ctx context.Context, api existingAPI, vpc string, f *existing.Facts) error {
	names, err := api.DescribeVpcAttribute(ctx, &ec2.DescribeVpcAttributeInput{VpcId: &vpc, Attribute: ec2types.VpcAttributeNameEnableDnsHostnames})
	if err != nil {
		return wrap(err, "look at the DNS of %s", vpc)
	}
	support, err := api.DescribeVpcAttribute(ctx, &ec2.DescribeVpcAttributeInput{VpcId: &vpc, Attribute: ec2types.VpcAttributeNameEnableDnsSupport})
	if err != nil {
		return wrap(err, "look at the DNS of %s", vpc)
	}
	f.DNSHostnames = names.EnableDnsHostnames != nil && aws.ToBool(names.EnableDnsHostnames.Value)
	f.DNSSupport = support.EnableDnsSupport != nil && aws.ToBool(support.EnableDnsSupport.Value)
	return nil
}

func lookAtGateways(ctx context.Context, api existingAPI, vpc string, f *existing.Facts) error {
	out, err := api.DescribeInternetGateways(ctx, &ec2.DescribeInternetGatewaysInput{Filters: filter("attachment.vpc-id", vpc)})
	if err != nil {
		return wrap(err, "list the internet gateways of %s", vpc)
	}
	for _, g := range out.InternetGateways {
		f.Gateways = append(f.Gateways, aws.ToString(g.InternetGatewayId))
	}
	return nil
}

// lookAtSubnets reads all of the VPC's, and those that the manifest names, wherever they are.
func lookAtSubnets(ctx context.Context, api existingAPI, n v1alpha1.Networking, f *existing.Facts) error {
	asked := [][]ec2types.Filter{filter("vpc-id", n.NetworkID)}
	var ids []string
	for _, s := range n.Subnets {
		if s.ID != "" {
			ids = append(ids, s.ID)
		}
	}
	if len(ids) > 0 {
		asked = append(asked, filter("subnet-id", ids...))
	}
	for _, filters := range asked {
		pages := ec2.NewDescribeSubnetsPaginator(api, &ec2.DescribeSubnetsInput{Filters: filters})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return wrap(err, "list the subnets of %s", n.NetworkID)
			}
			for _, s := range page.Subnets {
				f.Subnets[aws.ToString(s.SubnetId)] = existing.Subnet{
					VPC: aws.ToString(s.VpcId), Zone: aws.ToString(s.AvailabilityZone), CIDR: aws.ToString(s.CidrBlock),
					Cluster: fromEC2(s.Tags)[awskind.TagCluster], PublicAddresses: aws.ToBool(s.MapPublicIpOnLaunch),
				}
			}
		}
	}
	return nil
}

// lookAtRoutes finds what the VPC reaches that is neither itself nor the internet.
func lookAtRoutes(ctx context.Context, api existingAPI, vpc string, f *existing.Facts) error {
	pages := ec2.NewDescribeRouteTablesPaginator(api, &ec2.DescribeRouteTablesInput{Filters: filter("vpc-id", vpc)})
	seen := map[existing.Range]bool{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return wrap(err, "list the route tables of %s", vpc)
		}
		for _, t := range page.RouteTables {
			for _, r := range t.Routes {
				of := aws.ToString(r.VpcPeeringConnectionId) + aws.ToString(r.TransitGatewayId)
				if g := aws.ToString(r.GatewayId); strings.HasPrefix(g, "vgw-") {
					of += g
				}
				one := existing.Range{CIDR: aws.ToString(r.DestinationCidrBlock), Of: of}
				if of != "" && one.CIDR != "" && !seen[one] {
					seen[one] = true
					f.Routes = append(f.Routes, one)
				}
			}
		}
	}
	return nil
}

func lookAtNATs(ctx context.Context, api existingAPI, vpc string, f *existing.Facts) error {
	list, err := api.DescribeNatGateways(ctx, &ec2.DescribeNatGatewaysInput{Filter: filter("vpc-id", vpc)})
	if err != nil {
		return wrap(err, "list the NAT gateways of %s", vpc)
	}
	for _, g := range list.NatGateways {
		if g.State == ec2types.NatGatewayStateAvailable {
			f.VPCs[aws.ToString(g.NatGatewayId)] = vpc
		}
	}
	groups := ec2.NewDescribeSecurityGroupsPaginator(api, &ec2.DescribeSecurityGroupsInput{Filters: filter("vpc-id", vpc)})
	for groups.HasMorePages() {
		page, err := groups.NextPage(ctx)
		if err != nil {
			return wrap(err, "list the security groups of %s", vpc)
		}
		for _, g := range page.SecurityGroups {
			f.VPCs[aws.ToString(g.GroupId)] = vpc
		}
	}
	return nil
}

func lookAtAddresses(ctx context.Context, api existingAPI, n v1alpha1.Networking, f *existing.Facts) error {
	var ids []string
	for _, s := range n.Subnets {
		if strings.HasPrefix(s.Egress, "eipalloc-") {
			ids = append(ids, s.Egress)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	out, err := api.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{Filters: filter("allocation-id", ids...)})
	if err != nil {
		return wrap(err, "look at the addresses of the NAT gateways")
	}
	for _, a := range out.Addresses {
		f.Addresses[aws.ToString(a.AllocationId)] = aws.ToString(a.AssociationId)
	}
	return nil
}

func lookAtProfile(ctx context.Context, api existingProfileAPI, name string, f *existing.Facts) error {
	if name == "" {
		return nil
	}
	out, err := api.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
	if err = wrap(err, "look at instance profile %s", name); plan.ClassOf(err) == plan.NotFound {
		return nil
	}
	if err == nil && len(out.InstanceProfile.Roles) > 0 {
		f.Roles[name] = aws.ToString(out.InstanceProfile.Roles[0].RoleName)
	}
	return err
}

func lookAtKey(ctx context.Context, api existingKeyAPI, arn string, f *existing.Facts) error {
	if arn == "" {
		return nil
	}
	out, err := api.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &arn})
	if err = wrap(err, "look at %s", arn); plan.ClassOf(err) == plan.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if out.KeyMetadata == nil {
		return errors.New("look at " + arn + ": an answer without metadata")
	}
	f.KeyState[arn] = string(out.KeyMetadata.KeyState)
	return nil
}
