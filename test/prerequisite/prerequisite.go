// SPDX-License-Identifier: Apache-2.0

// Package prerequisite creates what the manifests of examples/ expect to exist in an account, for the tests that run with
// every topology. It works as an administrator, and does not know how Slipway creates a cluster.
package prerequisite

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/route53"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Create creates the resources that a manifest names: VPCs with their subnets and security groups, hosted zones, instance
// profiles and KMS keys. It returns their ids by those in the manifest.
func Create(t *testing.T, cfg aws.Config, spec v1alpha1.ClusterSpec) map[string]string {
	t.Helper()
	c := creator{T: t, cfg: cfg, ids: map[string]string{}}
	if spec.Networking.NetworkID != "" {
		c.createVPC(spec)
	}

	for _, p := range spec.Networking.VPCPeerings {
		c.createPeerVPC(p)
	}

	if manifest.IsZoneID(spec.DNSZone) {
		_, domain, _ := strings.Cut(spec.API.PublicName, ".")
		zone, err := route53.NewFromConfig(cfg).CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{
			Name: &domain, CallerReference: &domain,
		})
		c.check(err)
		c.ids[spec.DNSZone] = strings.TrimPrefix(*zone.HostedZone.Id, "/hostedzone/")
	}

	for _, name := range []string{
		spec.CloudProvider.AWS.InstanceProfiles.ControlPlane, spec.CloudProvider.AWS.InstanceProfiles.Worker,
	} {
		if name != "" {
			c.createProfile(name)
		}
	}

	if arn := spec.CloudProvider.AWS.KMSKeyARN; arn != "" {
		key, err := kms.NewFromConfig(cfg).CreateKey(t.Context(), &kms.CreateKeyInput{Description: aws.String("ours")})
		c.check(err)
		c.ids[arn] = *key.KeyMetadata.Arn
	}

	return c.ids
}

// creator creates resources, and remembers their ids by those in the manifest.
type creator struct {
	*testing.T
	cfg aws.Config
	ids map[string]string
}

// check ends the test after an error.
func (c creator) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// createVPC creates the VPC of the cluster, with an internet gateway, and with the subnets and security groups that the
// manifest names.
func (c creator) createVPC(spec v1alpha1.ClusterSpec) {
	c.Helper()
	api := ec2.NewFromConfig(c.cfg)
	ctx := c.Context()
	network := spec.Networking
	vpc, err := api.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: &network.NetworkCIDR})
	c.check(err)
	c.ids[network.NetworkID] = *vpc.Vpc.VpcId

	_, err = api.ModifyVpcAttribute(ctx, &ec2.ModifyVpcAttributeInput{
		VpcId: vpc.Vpc.VpcId, EnableDnsHostnames: &types.AttributeBooleanValue{Value: aws.Bool(true)},
	})
	c.check(err)

	gateway, err := api.CreateInternetGateway(ctx, nil)
	c.check(err)
	if network.InternetGatewayID != "" {
		c.ids[network.InternetGatewayID] = *gateway.InternetGateway.InternetGatewayId
	}

	_, err = api.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{
		VpcId: vpc.Vpc.VpcId, InternetGatewayId: gateway.InternetGateway.InternetGatewayId,
	})
	c.check(err)

	for _, s := range network.Subnets {
		if s.ID == "" {
			continue
		}

		made, err := api.CreateSubnet(ctx, &ec2.CreateSubnetInput{
			VpcId:            vpc.Vpc.VpcId,
			CidrBlock:        &s.CIDR,
			AvailabilityZone: &s.Zone,
		})
		c.check(err)
		c.ids[s.ID] = *made.Subnet.SubnetId
	}

	c.createSecurityGroups(spec, *vpc.Vpc.VpcId)
}

// createSecurityGroups creates the security groups that the manifest names.
func (c creator) createSecurityGroups(spec v1alpha1.ClusterSpec, vpc string) {
	c.Helper()
	for name, id := range map[string]string{
		"control-plane": spec.CloudProvider.AWS.SecurityGroups.ControlPlane,
		"worker":        spec.CloudProvider.AWS.SecurityGroups.Worker,
		"connect":       spec.MachineAccess.InstanceConnectSecurityGroup,
	} {
		if id == "" {
			continue
		}

		made, err := ec2.NewFromConfig(c.cfg).CreateSecurityGroup(c.Context(), &ec2.CreateSecurityGroupInput{
			VpcId:       &vpc,
			GroupName:   aws.String("our-" + name),
			Description: aws.String(name),
		})
		c.check(err)
		c.ids[id] = *made.GroupId
	}
}

// createPeerVPC creates the other VPC of a peering, with the route tables that the manifest names.
func (c creator) createPeerVPC(p v1alpha1.VPCPeering) {
	c.Helper()
	api := ec2.NewFromConfig(c.cfg)
	vpc, err := api.CreateVpc(c.Context(), &ec2.CreateVpcInput{CidrBlock: &p.CIDRs[0]})
	c.check(err)
	c.ids[p.NetworkID] = *vpc.Vpc.VpcId

	for _, id := range p.RouteTables {
		table, err := api.CreateRouteTable(c.Context(), &ec2.CreateRouteTableInput{VpcId: vpc.Vpc.VpcId})
		c.check(err)
		c.ids[id] = *table.RouteTable.RouteTableId
	}
}

// createProfile creates an instance profile with a role for machines.
func (c creator) createProfile(name string) {
	c.Helper()
	api := iam.NewFromConfig(c.cfg)
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`
	_, err := api.CreateRole(c.Context(), &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: &trust})
	c.check(err)

	_, err = api.CreateInstanceProfile(c.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: &name})
	c.check(err)

	_, err = api.AddRoleToInstanceProfile(c.Context(), &iam.AddRoleToInstanceProfileInput{
		InstanceProfileName: &name, RoleName: &name,
	})
	c.check(err)
}
