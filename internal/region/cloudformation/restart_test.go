// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// A region that is killed in the midst of a creation continues it: nothing is made twice, nothing is lost.
func TestCreationSurvivesTheRegion(t *testing.T) {
	t.Parallel()
	body := strings.Replace(network, "Outputs:\n", `  Igw: {Type: AWS::EC2::InternetGateway}
  Attached: {Type: AWS::EC2::VPCGatewayAttachment, Properties: {VpcId: !Ref Vpc, InternetGatewayId: !Ref Igw}}
  Eip: {Type: AWS::EC2::EIP, DependsOn: Attached, Properties: {Domain: vpc}}
  Nat: {Type: AWS::EC2::NatGateway, Properties: {SubnetId: !Ref Subnet, AllocationId: !GetAtt Eip.AllocationId}}
  Table: {Type: AWS::EC2::RouteTable, Properties: {VpcId: !Ref Vpc}}
  Route: {Type: AWS::EC2::Route, Properties: {RouteTableId: !Ref Table, DestinationCidrBlock: 0.0.0.0/0, NatGatewayId: !Ref Nat}}
  Joined: {Type: AWS::EC2::SubnetRouteTableAssociation, Properties: {RouteTableId: !Ref Table, SubnetId: !Ref Subnet}}
  Role: {Type: AWS::IAM::Role, Properties: {RoleName: r, AssumeRolePolicyDocument: {Version: "2012-10-17", Statement: [{Effect: Allow, Principal: {Service: ec2.amazonaws.com}, Action: "sts:AssumeRole"}]}}}
  Profile: {Type: AWS::IAM::InstanceProfile, Properties: {InstanceProfileName: p, Roles: [!Ref Role]}}
  Lb: {Type: AWS::ElasticLoadBalancingV2::LoadBalancer, Properties: {Name: lb, Type: network, Scheme: internal, Subnets: [!Ref Subnet]}}
  Tg: {Type: AWS::ElasticLoadBalancingV2::TargetGroup, Properties: {Name: tg, Protocol: TCP, Port: 80, VpcId: !Ref Vpc}}
  Listener: {Type: AWS::ElasticLoadBalancingV2::Listener, Properties: {LoadBalancerArn: !Ref Lb, Port: 80, Protocol: TCP, DefaultActions: [{Type: forward, TargetGroupArn: !Ref Tg}]}}
Outputs:
`, 1)
	first := newLab(t)
	first.begin("net", body)
	var crashes []regiontest.Snapshot
	for first.describe("net").StackStatus == types.StackStatusCreateInProgress {
		crashes = append(crashes, first.region.Snapshot(t))
		time.Sleep(time.Millisecond)
	}
	first.want(first.describe("net"), "CREATE_COMPLETE")
	if len(crashes) > 25 {
		step := len(crashes) / 25
		for i := range 25 {
			crashes[i] = crashes[i*step]
		}
		crashes = crashes[:25]
	}
	t.Logf("%d crashes", len(crashes))
	for _, snapshot := range crashes {
		l := labOf(t, regiontest.StartWith(t, regiontest.Options{Snapshot: snapshot, NoDefaultVPC: true, DeleteRetryTimeout: 5 * time.Second}))
		l.want(l.settle("net"), "CREATE_COMPLETE")
		if n := len(must[*ec2.DescribeVpcsOutput](l)(l.ec2.DescribeVpcs(l.ctx(), &ec2.DescribeVpcsInput{})).Vpcs); n != 1 {
			t.Errorf("%d VPCs", n)
		}
		l.want(l.remove("net"), "DELETE_COMPLETE")
		nats := must[*ec2.DescribeNatGatewaysOutput](l)(l.ec2.DescribeNatGateways(l.ctx(), &ec2.DescribeNatGatewaysInput{Filter: []ec2types.Filter{{Name: aws.String("state"), Values: []string{"available", "pending"}}}})).NatGateways
		left := len(must[*ec2.DescribeVpcsOutput](l)(l.ec2.DescribeVpcs(l.ctx(), &ec2.DescribeVpcsInput{})).Vpcs) +
			len(must[*ec2.DescribeAddressesOutput](l)(l.ec2.DescribeAddresses(l.ctx(), &ec2.DescribeAddressesInput{})).Addresses) +
			len(must[*ec2.DescribeInternetGatewaysOutput](l)(l.ec2.DescribeInternetGateways(l.ctx(), &ec2.DescribeInternetGatewaysInput{})).InternetGateways) +
			len(must[*iam.ListRolesOutput](l)(iam.NewFromConfig(l.region.AWSConfig()).ListRoles(l.ctx(), &iam.ListRolesInput{})).Roles) + len(nats)
		if left != 0 {
			t.Errorf("%d things are left after the stack", left)
		}
	}
}

// A rolling update that was under way continues: machines that were replaced are not replaced again.
func TestRollingUpdateSurvivesTheRegion(t *testing.T) {
	t.Parallel()
	first := newLab(t)
	first.begin("f", fleet)
	first.want(first.tend(nil), "CREATE_COMPLETE")
	before := first.members()
	first.change("f", fleet, "Type", "t3.large")
	fresh := ""
	first.until("one machine is new and said so", func() bool {
		fresh = first.report(before, types.ResourceSignalStatusSuccess)
		return fresh != ""
	})
	snapshot := first.region.Snapshot(t)
	l := labOf(t, regiontest.StartWith(t, regiontest.Options{Snapshot: snapshot, NoDefaultVPC: true}))
	seen := map[string]string{fresh: "sent"}
	for id := range before {
		seen[id] = "old"
	}
	l.want(l.tend(seen), "UPDATE_COMPLETE")
	after := l.members()
	if after[fresh] == "" || len(after) != 2 {
		t.Errorf("%s is not among %v", fresh, after)
	}
	for id := range after {
		if before[id] != "" {
			t.Errorf("%s is still the old one", id)
		}
	}
}
