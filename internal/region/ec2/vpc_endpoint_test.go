// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

func (r region) makeEndpoint(t *testing.T, in client.CreateVpcEndpointInput) string {
	t.Helper()
	return *must[*client.CreateVpcEndpointOutput](t)(r.CreateVpcEndpoint(t.Context(), &in)).VpcEndpoint.VpcEndpointId
}

func TestEndpointErrors(t *testing.T) {
	r := newRegion(t)
	n := r.createTestNetwork(t)
	ctx := t.Context()
	r.makeEndpoint(t, client.CreateVpcEndpointInput{VpcId: &n.vpc, ServiceName: aws.String("com.amazonaws.us-east-1.s3"), RouteTableIds: []string{n.table}})
	iface := types.VpcEndpointTypeInterface
	dns := func(on bool) {
		for _, in := range []client.ModifyVpcAttributeInput{
			{EnableDnsSupport: &types.AttributeBooleanValue{Value: &on}}, {EnableDnsHostnames: &types.AttributeBooleanValue{Value: &on}},
		} {
			in.VpcId = &n.vpc
			must[*client.ModifyVpcAttributeOutput](t)(r.ModifyVpcAttribute(ctx, &in))
		}
	}
	dns(true)
	r.makeEndpoint(t, client.CreateVpcEndpointInput{VpcId: &n.vpc, ServiceName: aws.String("com.amazonaws.us-east-1.ec2"), VpcEndpointType: iface, SubnetIds: []string{n.private}})
	for want, in := range map[string]client.CreateVpcEndpointInput{
		"InvalidServiceName":         {ServiceName: aws.String("com.amazonaws.us-east-1.ec3")},
		"RouteAlreadyExists":         {ServiceName: aws.String("com.amazonaws.us-east-1.s3"), RouteTableIds: []string{n.table}},
		"InvalidParameter":           {ServiceName: aws.String("com.amazonaws.us-east-1.ec2")}, // ec2 supports no gateway endpoint
		"DuplicateSubnetsInSameZone": {ServiceName: aws.String("com.amazonaws.us-east-1.kms"), VpcEndpointType: iface, SubnetIds: []string{n.private, n.private}},
		"InvalidGroup.NotFound":      {ServiceName: aws.String("com.amazonaws.us-east-1.kms"), VpcEndpointType: iface, SecurityGroupIds: []string{"sg-0123456789abcdef0"}},
	} {
		in.VpcId = &n.vpc
		if _, err := r.CreateVpcEndpoint(ctx, &in); code(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	second := client.CreateVpcEndpointInput{VpcId: &n.vpc, ServiceName: aws.String("com.amazonaws.us-east-1.ec2"), VpcEndpointType: iface}
	if _, err := r.CreateVpcEndpoint(ctx, &second); code(err) != "InvalidParameter" {
		t.Errorf("two endpoints with private DNS for one service: %v", err)
	}
	dns(false)
	second.ServiceName = aws.String("com.amazonaws.us-east-1.sts")
	if _, err := r.CreateVpcEndpoint(ctx, &second); code(err) != "InvalidParameter" {
		t.Errorf("private DNS in a VPC without DNS: %v", err)
	}
}

// TestEndpointLifecycle: an endpoint is pending, then available and part of the network. It blocks the deletion of its subnet and its group until it is deleted.
func TestEndpointLifecycle(t *testing.T) {
	r := newRegion(t)
	vpc, subnet := r.createVPCWithSubnet(t)
	ctx := t.Context()
	yes := &types.AttributeBooleanValue{Value: aws.Bool(true)}
	must[*client.ModifyVpcAttributeOutput](t)(r.ModifyVpcAttribute(ctx, &client.ModifyVpcAttributeInput{VpcId: &vpc, EnableDnsHostnames: yes}))
	group := *must[*client.CreateSecurityGroupOutput](t)(r.CreateSecurityGroup(ctx, &client.CreateSecurityGroupInput{
		GroupName: aws.String("endpoints"), Description: aws.String("endpoints"), VpcId: &vpc,
	})).GroupId
	id := r.makeEndpoint(t, client.CreateVpcEndpointInput{
		VpcId: &vpc, ServiceName: aws.String("com.amazonaws.us-east-1.ecr.dkr"), VpcEndpointType: types.VpcEndpointTypeInterface,
		SubnetIds: []string{subnet}, SecurityGroupIds: []string{group},
	})
	drawn := func() (services []string) {
		for _, e := range r.svc.DesiredNetwork().VPCs[0].Endpoints {
			services = append(services, e.Service)
		}
		return services
	}
	if got := drawn(); len(got) != 0 {
		t.Errorf("a pending endpoint is in the network: %v", got)
	}
	r.clock.Add(time.Second)
	must[*client.DescribeVpcsOutput](t)(r.DescribeVpcs(ctx, nil))
	if diff := cmp.Diff([]string{"ecr.dkr"}, drawn()); diff != "" {
		t.Errorf("network (-want +got): %s", diff)
	}
	for _, s := range []step{
		{"its group", func(ctx context.Context) error {
			_, err := r.DeleteSecurityGroup(ctx, &client.DeleteSecurityGroupInput{GroupId: &group})
			return err
		}, "DependencyViolation"},
		{"its subnet", r.dropSubnet(subnet), "DependencyViolation"},
		{"another group", func(ctx context.Context) error {
			_, err := r.ModifyVpcEndpoint(ctx, &client.ModifyVpcEndpointInput{VpcEndpointId: &id, RemoveSecurityGroupIds: []string{group}})
			return err
		}, "InvalidParameter"},
		{"deletion", func(ctx context.Context) error {
			_, err := r.DeleteVpcEndpoints(ctx, &client.DeleteVpcEndpointsInput{VpcEndpointIds: []string{id}})
			return err
		}, ""},
		{"its subnet while it goes", r.dropSubnet(subnet), "DependencyViolation"},
	} {
		if err := s.do(ctx); code(err) != s.want {
			t.Errorf("%s: %v, want %q", s.name, err, s.want)
		}
	}
	r.clock.Add(time.Second)
	if err := r.dropSubnet(subnet)(ctx); err != nil {
		t.Errorf("delete its subnet after the endpoint: %v", err)
	}
}
