// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"regexp"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/route53"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/test/dnsfunction"
)

// prepareTopology creates the resources that a topology expects to exist, and returns the topology
// with their IDs.
func (d directJudge) prepareTopology(t *testing.T, x rendertest.Topology) rendertest.Topology {
	t.Helper()
	in := x.Input(t, regiontest.RegionName)
	if model.UsesEtcdDNS(in.Cluster.Spec) {
		x = x.WithFunction(dnsfunction.Publish(t, d.cfg, in.MachineStore.Bucket, in.FunctionCode.Key))
	}

	return x.WithReplaced(d.createExisting(t, in))
}

// createExisting creates the resources that an example names, and returns the new IDs by the IDs in
// the example.
func (d directJudge) createExisting(t *testing.T, in model.Input) map[string]string {
	t.Helper()
	d.createBoundary(t)
	ids := map[string]string{}
	spec := in.Cluster.Spec
	if spec.Networking.NetworkID != "" {
		d.createVPC(t, in, ids)
	}
	for _, p := range spec.Networking.VPCPeerings {
		d.createPeerVPC(t, p, ids)
	}
	if manifest.IsZoneID(spec.DNSZone) {
		_, domain, _ := strings.Cut(spec.API.PublicName, ".")
		zone, err := route53.NewFromConfig(d.cfg).CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{Name: &domain, CallerReference: &domain})
		failOnError(t, err)
		ids[spec.DNSZone] = strings.TrimPrefix(*zone.HostedZone.Id, "/hostedzone/")
	}
	aws := spec.CloudProvider.AWS
	for _, name := range []string{aws.InstanceProfiles.ControlPlane, aws.InstanceProfiles.Worker} {
		if name != "" {
			d.createProfile(t, name)
		}
	}
	if arn := aws.KMSKeyARN; arn != "" {
		key, err := kms.NewFromConfig(d.cfg).CreateKey(t.Context(), &kms.CreateKeyInput{Description: sdk.String("ours")})
		failOnError(t, err)
		ids[arn] = *key.KeyMetadata.Arn
	}
	return ids
}

func (d directJudge) createVPC(t *testing.T, in model.Input, ids map[string]string) {
	t.Helper()
	api, ctx, n := ec2.NewFromConfig(d.cfg), t.Context(), in.Cluster.Spec.Networking
	vpc, err := api.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: &n.NetworkCIDR})
	failOnError(t, err)
	ids[n.NetworkID] = *vpc.Vpc.VpcId
	_, err = api.ModifyVpcAttribute(ctx, &ec2.ModifyVpcAttributeInput{VpcId: vpc.Vpc.VpcId, EnableDnsHostnames: &ec2types.AttributeBooleanValue{Value: sdk.Bool(true)}})
	failOnError(t, err)
	gateway, err := api.CreateInternetGateway(ctx, nil)
	failOnError(t, err)
	if n.InternetGatewayID != "" {
		ids[n.InternetGatewayID] = *gateway.InternetGateway.InternetGatewayId
	}
	_, err = api.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{VpcId: vpc.Vpc.VpcId, InternetGatewayId: gateway.InternetGateway.InternetGatewayId})
	failOnError(t, err)
	for _, s := range n.Subnets {
		if s.ID == "" {
			continue
		}
		made, err := api.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: vpc.Vpc.VpcId, CidrBlock: &s.CIDR, AvailabilityZone: &s.Zone})
		failOnError(t, err)
		ids[s.ID] = *made.Subnet.SubnetId
	}
	groups := in.Cluster.Spec.CloudProvider.AWS.SecurityGroups
	connect := in.Cluster.Spec.MachineAccess.InstanceConnectSecurityGroup
	for name, id := range map[string]string{"control-plane": groups.ControlPlane, "worker": groups.Worker, "connect": connect} {
		if id == "" {
			continue
		}
		made, err := api.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{VpcId: vpc.Vpc.VpcId, GroupName: sdk.String("our-" + name), Description: sdk.String(name)})
		failOnError(t, err)
		ids[id] = *made.GroupId
	}
}

// createPeerVPC creates the other VPC of a peering, with the route tables that the manifest names.
func (d directJudge) createPeerVPC(t *testing.T, p v1alpha1.VPCPeering, ids map[string]string) {
	t.Helper()
	api, ctx := ec2.NewFromConfig(d.cfg), t.Context()
	vpc, err := api.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: &p.CIDRs[0]})
	failOnError(t, err)
	ids[p.NetworkID] = *vpc.Vpc.VpcId
	for _, id := range p.RouteTables {
		table, err := api.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: vpc.Vpc.VpcId})
		failOnError(t, err)
		ids[id] = *table.RouteTable.RouteTableId
	}
}

func (d directJudge) createProfile(t *testing.T, name string) {
	t.Helper()
	api, ctx := iam.NewFromConfig(d.cfg), t.Context()
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`
	_, err := api.CreateRole(ctx, &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: &trust})
	failOnError(t, err)
	_, err = api.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: &name})
	failOnError(t, err)
	_, err = api.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &name, RoleName: &name})
	failOnError(t, err)
}

// TestTwoClustersInOneVPC creates two clusters in one VPC. Neither the creation nor the deletion of
// the second changes the first.
func TestTwoClustersInOneVPC(t *testing.T) {
	d := directJudge{cfg: regiontest.Start(t).AWSConfig(), fixDefects: keepResource}
	var pair []rendertest.Topology
	for _, x := range rendertest.Topologies() {
		if regexp.MustCompile(`^shared-vpc-[ab]$`).MatchString(x.Name) {
			pair = append(pair, x)
		}
	}
	if len(pair) != 2 {
		t.Fatalf("%d examples, want 2", len(pair))
	}
	ids := d.createExisting(t, pair[0].Input(t, regiontest.RegionName))
	before := d.listInventory(t)
	a, b := d.buildCluster(t, pair[0].WithReplaced(ids).Input(t, regiontest.RegionName)), d.buildCluster(t, pair[1].WithReplaced(ids).Input(t, regiontest.RegionName))
	a.apply(t)
	b.apply(t)
	a.checkNoChanges(t)
	b.checkNoChanges(t)
	a.remove(t)
	b.checkNoChanges(t)
	b.remove(t)
	d.checkInventory(t, before)
}
