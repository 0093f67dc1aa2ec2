// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/visibility"
)

// TestZonesHaveGroups: a zone has the long name of its group (LocalStack's recordings of
// test_describe_availability_zones_filters).
func TestZonesHaveGroups(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	out, err := r.DescribeAvailabilityZones(t.Context(), &client.DescribeAvailabilityZonesInput{})
	if err != nil || len(out.AvailabilityZones) == 0 {
		t.Fatalf("%+v, %v", out, err)
	}

	for _, z := range out.AvailabilityZones {
		if aws.ToString(z.GroupName) != "us-east-1-zg-1" || aws.ToString(z.GroupLongName) != "US East (N. Virginia) 1" {
			t.Errorf("%s is in %s, %q", *z.ZoneName, aws.ToString(z.GroupName), aws.ToString(z.GroupLongName))
		}
	}
}

// TestNetworksWithoutIPv6: a new VPC and every subnet have an empty set of IPv6 blocks.
func TestNetworksWithoutIPv6(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	ctx := t.Context()
	v, err := r.CreateVpc(ctx, &client.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
	if err != nil || v.Vpc.Ipv6CidrBlockAssociationSet == nil {
		t.Fatalf("CreateVpc: %+v, %v", v, err)
	}

	described, err := r.DescribeVpcs(ctx, &client.DescribeVpcsInput{VpcIds: []string{*v.Vpc.VpcId}})
	if err != nil || described.Vpcs[0].Ipv6CidrBlockAssociationSet != nil {
		t.Errorf("DescribeVpcs: %+v, %v", described, err)
	}

	n, err := r.CreateSubnet(ctx, &client.CreateSubnetInput{VpcId: v.Vpc.VpcId, CidrBlock: aws.String("10.0.0.0/24")})
	if err != nil || n.Subnet.Ipv6CidrBlockAssociationSet == nil {
		t.Fatalf("CreateSubnet: %+v, %v", n, err)
	}

	list, err := r.DescribeSubnets(ctx, &client.DescribeSubnetsInput{SubnetIds: []string{*n.Subnet.SubnetId}})
	if err != nil || list.Subnets[0].Ipv6CidrBlockAssociationSet == nil {
		t.Errorf("DescribeSubnets: %+v, %v", list, err)
	}
}

// TestAddressesOfDeletedGateways: an Elastic IP address stays associated until its NAT gateway is deleted, and its release is
// refused for a while afterwards.
func TestAddressesOfDeletedGateways(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	ctx := t.Context()
	n := r.createTestNetwork(t)
	if _, err := r.DeleteNatGateway(ctx, &client.DeleteNatGatewayInput{NatGatewayId: &n.nat}); err != nil {
		t.Fatal(err)
	}

	associated := func() bool {
		t.Helper()
		out, err := r.DescribeAddresses(ctx, &client.DescribeAddressesInput{AllocationIds: []string{n.eip}})
		if err != nil {
			t.Fatal(err)
		}

		return out.Addresses[0].AssociationId != nil
	}
	if !associated() {
		t.Error("the address of a NAT gateway that is being deleted is free")
	}

	r.svc.SetVisibility(visibility.Delay{Time: 5 * time.Second})
	r.clock.Add(time.Second)
	if associated() {
		t.Error("the address of a deleted NAT gateway is not free")
	}

	if got := code(r.release(n)(ctx)); got != "AuthFailure" {
		t.Errorf("just after the deletion: %q, want AuthFailure", got)
	}

	r.clock.Add(5 * time.Second)
	if got := code(r.release(n)(ctx)); got != "" {
		t.Errorf("later: %q", got)
	}
}
