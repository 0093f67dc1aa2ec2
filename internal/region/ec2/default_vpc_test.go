// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/state"
)

func withDefaultVPC(c *ec2.Config) { c.DefaultVPC = true }

// byDefault are filters for resources of the default VPC.
func byDefault(t *testing.T, r region) []types.Filter {
	t.Helper()
	vpcs := must[*client.DescribeVpcsOutput](t)(r.DescribeVpcs(t.Context(), &client.DescribeVpcsInput{
		Filters: []types.Filter{{Name: aws.String("is-default"), Values: []string{"true"}}},
	}))
	if len(vpcs.Vpcs) != 1 {
		t.Fatalf("%d default VPCs", len(vpcs.Vpcs))
	}
	if got := aws.ToString(vpcs.Vpcs[0].CidrBlock); got != "172.31.0.0/16" {
		t.Errorf("the default VPC has the range %s", got)
	}

	return []types.Filter{{Name: aws.String("vpc-id"), Values: []string{*vpcs.Vpcs[0].VpcId}}}
}

func TestDefaultVPC(t *testing.T) {
	t.Parallel()
	r := newRegion(t, withDefaultVPC)
	mine := byDefault(t, r)

	subnets := must[*client.DescribeSubnetsOutput](t)(r.DescribeSubnets(t.Context(), &client.DescribeSubnetsInput{Filters: mine}))
	zones := map[string]string{}
	for _, n := range subnets.Subnets {
		zones[*n.AvailabilityZone] = *n.CidrBlock
		if !*n.DefaultForAz || !*n.MapPublicIpOnLaunch || *n.AvailableIpAddressCount != 4091 {
			t.Errorf("subnet of %s: default %t, public %t, %d addresses", *n.AvailabilityZone, *n.DefaultForAz, *n.MapPublicIpOnLaunch, *n.AvailableIpAddressCount)
		}
	}
	if len(zones) != 6 || zones["us-east-1a"] != "172.31.0.0/20" || zones["us-east-1f"] != "172.31.80.0/20" {
		t.Errorf("subnets by zone: %v", zones)
	}

	tables := must[*client.DescribeRouteTablesOutput](t)(r.DescribeRouteTables(t.Context(), &client.DescribeRouteTablesInput{Filters: mine}))
	if len(tables.RouteTables) != 1 || len(tables.RouteTables[0].Routes) != 2 ||
		!strings.HasPrefix(aws.ToString(tables.RouteTables[0].Routes[1].GatewayId), "igw-") {
		t.Errorf("route tables: %+v", tables.RouteTables)
	}
	groups := must[*client.DescribeSecurityGroupsOutput](t)(r.DescribeSecurityGroups(t.Context(), &client.DescribeSecurityGroupsInput{Filters: mine}))
	if len(groups.SecurityGroups) != 1 || *groups.SecurityGroups[0].GroupName != "default" {
		t.Errorf("groups: %+v", groups.SecurityGroups)
	}
}

// An instance without a subnet and a group without a VPC are part of the default VPC.
func TestDefaultVPCIsTheDefault(t *testing.T) {
	t.Parallel()
	r := newRegion(t, withDefaultVPC)
	vpc := byDefault(t, r)[0].Values[0]
	run := must[*client.RunInstancesOutput](t)(r.RunInstances(t.Context(), &client.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), ImageId: aws.String(image), InstanceType: "t3.small",
		Placement: &types.Placement{AvailabilityZone: aws.String("us-east-1c")},
	}))
	if i := run.Instances[0]; *i.VpcId != vpc || *i.Placement.AvailabilityZone != "us-east-1c" || i.PrivateIpAddress == nil ||
		!strings.HasPrefix(*i.PrivateIpAddress, "172.31.") {
		t.Errorf("instance in %s, %s, with %s", *i.VpcId, *i.Placement.AvailabilityZone, aws.ToString(i.PrivateIpAddress))
	}

	must[*client.CreateSecurityGroupOutput](t)(r.CreateSecurityGroup(t.Context(), &client.CreateSecurityGroupInput{
		GroupName: aws.String("web"), Description: aws.String("web"),
	}))
	must[*client.DeleteSecurityGroupOutput](t)(r.DeleteSecurityGroup(t.Context(), &client.DeleteSecurityGroupInput{GroupName: aws.String("web")}))
}

// A region without one answers as accounts whose default VPC was deleted do, and does not get it back.
func TestDeletedDefaultVPCStaysDeleted(t *testing.T) {
	t.Parallel()
	dir := state.Dir(t.TempDir())
	kept := func(c *ec2.Config) { c.DefaultVPC, c.State = true, dir }
	r := newRegion(t, kept)
	mine := byDefault(t, r)
	vpc := mine[0].Values[0]
	again := newRegion(t, kept)
	if got := byDefault(t, again)[0].Values[0]; got != vpc {
		t.Fatalf("a restart changes %s into %s", vpc, got)
	}

	subnets := must[*client.DescribeSubnetsOutput](t)(again.DescribeSubnets(t.Context(), &client.DescribeSubnetsInput{Filters: mine}))
	for _, n := range subnets.Subnets {
		must[*client.DeleteSubnetOutput](t)(again.DeleteSubnet(t.Context(), &client.DeleteSubnetInput{SubnetId: n.SubnetId}))
	}
	gateways := must[*client.DescribeInternetGatewaysOutput](t)(again.DescribeInternetGateways(t.Context(), &client.DescribeInternetGatewaysInput{}))
	for _, g := range gateways.InternetGateways {
		must[*client.DetachInternetGatewayOutput](t)(again.DetachInternetGateway(t.Context(), &client.DetachInternetGatewayInput{InternetGatewayId: g.InternetGatewayId, VpcId: &vpc}))
		must[*client.DeleteInternetGatewayOutput](t)(again.DeleteInternetGateway(t.Context(), &client.DeleteInternetGatewayInput{InternetGatewayId: g.InternetGatewayId}))
	}
	must[*client.DeleteVpcOutput](t)(again.DeleteVpc(t.Context(), &client.DeleteVpcInput{VpcId: &vpc}))

	third := newRegion(t, kept)
	_, err := third.CreateSecurityGroup(t.Context(), &client.CreateSecurityGroupInput{GroupName: aws.String("web"), Description: aws.String("web")})
	if got := code(err); got != "VPCIdNotSpecified" {
		t.Errorf("a group without a VPC: %s", got)
	}
	_, err = third.RunInstances(t.Context(), &client.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), ImageId: aws.String(image), InstanceType: "t3.small",
	})
	if got := code(err); got != "MissingInput" {
		t.Errorf("an instance without a subnet: %s", got)
	}
}

// What EC2 adds to the records of instances, seen by tests of moto that need the default VPC.
func TestInstancesTellWhatEC2Adds(t *testing.T) {
	t.Parallel()
	r := newRegion(t, withDefaultVPC)
	created := must[*client.CreateLaunchTemplateOutput](t)(r.CreateLaunchTemplate(t.Context(), &client.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("nodes"), LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: aws.String(image), InstanceType: "t3.small"},
	}))
	three := must[*client.RunInstancesOutput](t)(r.RunInstances(t.Context(), &client.RunInstancesInput{
		MinCount: aws.Int32(3), MaxCount: aws.Int32(3),
		LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateName: aws.String("nodes"), Version: aws.String("$Latest")},
	}))
	describe := func(id string) []types.Instance {
		out := must[*client.DescribeInstancesOutput](t)(r.DescribeInstances(t.Context(), &client.DescribeInstancesInput{
			Filters: []types.Filter{{Name: aws.String("reservation-id"), Values: []string{id}}},
		}))
		return out.Reservations[0].Instances
	}
	for n, i := range describe(*three.ReservationId) {
		if int(*i.AmiLaunchIndex) != n {
			t.Errorf("instance %d has index %d", n, *i.AmiLaunchIndex)
		}
		tags := map[string]string{}
		for _, tag := range i.Tags {
			tags[*tag.Key] = *tag.Value
		}
		if len(tags) != 2 || tags["aws:ec2launchtemplate:id"] != *created.LaunchTemplate.LaunchTemplateId || tags["aws:ec2launchtemplate:version"] != "1" {
			t.Errorf("tags of an instance of a template: %v", tags)
		}
	}

	plain := must[*client.RunInstancesOutput](t)(r.RunInstances(t.Context(), &client.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), ImageId: aws.String(image), InstanceType: "t3.small",
	}))
	id := *plain.Instances[0].InstanceId
	if tags := describe(*plain.ReservationId)[0].Tags; tags != nil {
		t.Errorf("an instance without tags: %v", tags)
	}
	r.clock.Add(time.Minute)
	r.waitForState(t, id, types.InstanceStateNameRunning)
	must[*client.StopInstancesOutput](t)(r.StopInstances(t.Context(), &client.StopInstancesInput{InstanceIds: []string{id}}))
	if i := describe(*plain.ReservationId)[0]; !strings.HasPrefix(aws.ToString(i.StateTransitionReason), "User initiated (") ||
		i.StateReason == nil || aws.ToString(i.StateReason.Code) != "Client.UserInitiatedShutdown" {
		t.Errorf("a stopped instance: %s, %+v", aws.ToString(i.StateTransitionReason), i.StateReason)
	}
}
