// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

func tags(kind types.ResourceType, kv ...string) []types.TagSpecification {
	var out []types.Tag
	for i := 0; i < len(kv); i += 2 {
		out = append(out, types.Tag{Key: &kv[i], Value: &kv[i+1]})
	}
	return []types.TagSpecification{{ResourceType: kind, Tags: out}}
}

func TestVPCFromPendingToDeleted(t *testing.T) {
	r, ctx := newRegion(t), t.Context()
	made := must[*client.CreateVpcOutput](t)(r.CreateVpc(ctx, &client.CreateVpcInput{
		CidrBlock: aws.String("10.0.0.0/16"), TagSpecifications: tags("vpc", "Name", "v", "team", "a"),
	}))
	if got := made.Vpc.State; got != types.VpcStatePending {
		t.Errorf("new VPC is %s, want pending", got)
	}
	r.clock.Add(time.Second)
	got := must[*client.DescribeVpcsOutput](t)(r.DescribeVpcs(ctx, &client.DescribeVpcsInput{
		Filters: []types.Filter{{Name: aws.String("tag:team"), Values: []string{"a*"}}, {Name: aws.String("state"), Values: []string{"available"}}},
	}))
	if len(got.Vpcs) != 1 || len(got.Vpcs[0].Tags) != 2 {
		t.Fatalf("found %+v, want one VPC with two tags", got.Vpcs)
	}
	byVPC := []types.Filter{{Name: aws.String("vpc-id"), Values: []string{*made.Vpc.VpcId}}}
	groups := must[*client.DescribeSecurityGroupsOutput](t)(r.DescribeSecurityGroups(ctx, &client.DescribeSecurityGroupsInput{Filters: byVPC}))
	tables := must[*client.DescribeRouteTablesOutput](t)(r.DescribeRouteTables(ctx, &client.DescribeRouteTablesInput{Filters: byVPC}))
	acls := must[*client.DescribeNetworkAclsOutput](t)(r.DescribeNetworkAcls(ctx, &client.DescribeNetworkAclsInput{Filters: byVPC}))
	have := []int{len(groups.SecurityGroups), len(tables.RouteTables), len(acls.NetworkAcls)}
	if diff := cmp.Diff([]int{1, 1, 1}, have); diff != "" {
		t.Errorf("a new VPC's default group, main table and default ACL (-want +got):\n%s", diff)
	}
	if !*tables.RouteTables[0].Associations[0].Main {
		t.Error("the new VPC's table is not its main one")
	}
	must[*client.DeleteVpcOutput](t)(r.DeleteVpc(ctx, &client.DeleteVpcInput{VpcId: made.Vpc.VpcId}))
	_, err := r.DescribeVpcs(ctx, &client.DescribeVpcsInput{VpcIds: []string{*made.Vpc.VpcId}})
	if code(err) != "InvalidVpcID.NotFound" {
		t.Errorf("describe a deleted VPC: %v", err)
	}
}
