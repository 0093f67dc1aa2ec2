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

// testNetwork is a VPC with a public and a private subnet, as the provisioner creates them.
type testNetwork struct {
	vpc, igw, public, private, eip, nat, table, assoc, group, instance string
}

func (r region) createTestNetwork(t *testing.T) testNetwork {
	t.Helper()
	ctx, n := t.Context(), testNetwork{}
	n.vpc, n.private = r.createVPCWithSubnet(t)
	n.igw = *must[*client.CreateInternetGatewayOutput](t)(r.CreateInternetGateway(ctx, &client.CreateInternetGatewayInput{})).InternetGateway.InternetGatewayId
	must[*client.AttachInternetGatewayOutput](t)(r.AttachInternetGateway(ctx, &client.AttachInternetGatewayInput{InternetGatewayId: &n.igw, VpcId: &n.vpc}))
	n.public = *must[*client.CreateSubnetOutput](t)(r.CreateSubnet(ctx, &client.CreateSubnetInput{VpcId: &n.vpc, CidrBlock: aws.String("10.0.2.0/24")})).Subnet.SubnetId
	n.eip = *must[*client.AllocateAddressOutput](t)(r.AllocateAddress(ctx, &client.AllocateAddressInput{Domain: "vpc"})).AllocationId
	n.nat = *must[*client.CreateNatGatewayOutput](t)(r.CreateNatGateway(ctx, &client.CreateNatGatewayInput{SubnetId: &n.public, AllocationId: &n.eip})).NatGateway.NatGatewayId
	n.table = *must[*client.CreateRouteTableOutput](t)(r.CreateRouteTable(ctx, &client.CreateRouteTableInput{VpcId: &n.vpc})).RouteTable.RouteTableId
	must[*client.CreateRouteOutput](t)(r.CreateRoute(ctx, &client.CreateRouteInput{RouteTableId: &n.table, DestinationCidrBlock: aws.String("0.0.0.0/0"), NatGatewayId: &n.nat}))
	n.assoc = *must[*client.AssociateRouteTableOutput](t)(r.AssociateRouteTable(ctx, &client.AssociateRouteTableInput{RouteTableId: &n.table, SubnetId: &n.private})).AssociationId
	n.group = *must[*client.CreateSecurityGroupOutput](t)(r.CreateSecurityGroup(ctx, &client.CreateSecurityGroupInput{
		GroupName: aws.String("nodes"), Description: aws.String("nodes"), VpcId: &n.vpc,
	})).GroupId
	out := must[*client.RunInstancesOutput](t)(r.RunInstances(ctx, &client.RunInstancesInput{
		ImageId: aws.String(image), InstanceType: "t3.medium", MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: &n.private, SecurityGroupIds: []string{n.group},
	}))
	n.instance = *out.Instances[0].InstanceId
	r.clock.Add(time.Second)
	return n
}

// step is one call and the error code that it must return; empty means success.
type step struct {
	name string
	do   func(context.Context) error
	want string
}

func (r region) steps(n testNetwork) []step {
	return []step{
		{"VPC with everything in it", r.dropVPC(n), "DependencyViolation"},
		{"subnet with an instance", r.dropSubnet(n.private), "DependencyViolation"},
		{"subnet with a NAT gateway", r.dropSubnet(n.public), "DependencyViolation"},
		{"group of an instance", r.dropGroup(n), "DependencyViolation"},
		{"attached gateway", r.dropInternet(n), "DependencyViolation"},
		{"gateway under public addresses", r.detachInternet(n), "DependencyViolation"},
		{"address of a NAT gateway", r.release(n), "AuthFailure"},
		{"address of a NAT gateway, taken away", func(ctx context.Context) error {
			a, err := r.DescribeAddresses(ctx, &client.DescribeAddressesInput{AllocationIds: []string{n.eip}})
			if err != nil {
				return err
			}
			_, err = r.DisassociateAddress(ctx, &client.DisassociateAddressInput{AssociationId: a.Addresses[0].AssociationId})
			return err
		}, "AuthFailure"},
		{"associated table", r.dropTable(n), "DependencyViolation"},
		{"terminate", func(ctx context.Context) error {
			_, err := r.TerminateInstances(ctx, &client.TerminateInstancesInput{InstanceIds: []string{n.instance}})
			return err
		}, ""},
		{"group of an instance that still shuts down", r.dropGroup(n), "DependencyViolation"},
		{"wait", r.wait, ""},
		{"group", r.dropGroup(n), ""},
		{"group again", r.dropGroup(n), "InvalidGroup.NotFound"},
		{"NAT gateway", func(ctx context.Context) error {
			_, err := r.DeleteNatGateway(ctx, &client.DeleteNatGatewayInput{NatGatewayId: &n.nat})
			return err
		}, ""},
		{"address of a NAT gateway that still goes", r.release(n), "AuthFailure"},
		{"wait", r.wait, ""},
		{"address", r.release(n), ""},
		{"gateway", r.detachInternet(n), ""},
		{"gateway again", r.detachInternet(n), "Gateway.NotAttached"},
		{"gateway", r.dropInternet(n), ""},
		{"private subnet", r.dropSubnet(n.private), ""},
		{"public subnet", r.dropSubnet(n.public), ""},
		{"VPC with a table", r.dropVPC(n), "DependencyViolation"},
		{"table, freed with its subnet", r.dropTable(n), ""},
		{"VPC", r.dropVPC(n), ""},
		{"VPC again", r.dropVPC(n), "InvalidVpcID.NotFound"},
	}
}

func (r region) wait(context.Context) error {
	r.clock.Add(time.Second)
	return nil
}

func (r region) dropVPC(n testNetwork) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := r.DeleteVpc(ctx, &client.DeleteVpcInput{VpcId: &n.vpc})
		return err
	}
}

func (r region) dropSubnet(id string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := r.DeleteSubnet(ctx, &client.DeleteSubnetInput{SubnetId: &id})
		return err
	}
}

func (r region) dropGroup(n testNetwork) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := r.DeleteSecurityGroup(ctx, &client.DeleteSecurityGroupInput{GroupId: &n.group})
		return err
	}
}

func (r region) dropInternet(n testNetwork) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := r.DeleteInternetGateway(ctx, &client.DeleteInternetGatewayInput{InternetGatewayId: &n.igw})
		return err
	}
}

func (r region) detachInternet(n testNetwork) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := r.DetachInternetGateway(ctx, &client.DetachInternetGatewayInput{InternetGatewayId: &n.igw, VpcId: &n.vpc})
		return err
	}
}

func (r region) release(n testNetwork) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := r.ReleaseAddress(ctx, &client.ReleaseAddressInput{AllocationId: &n.eip})
		return err
	}
}

func (r region) dropTable(n testNetwork) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := r.DeleteRouteTable(ctx, &client.DeleteRouteTableInput{RouteTableId: &n.table})
		return err
	}
}

func TestDependenciesBlockDeletion(t *testing.T) {
	r := newRegion(t)
	for _, s := range r.steps(r.createTestNetwork(t)) {
		if got := code(s.do(t.Context())); got != s.want {
			t.Fatalf("%s: got %q, want %q", s.name, got, s.want)
		}
	}
}

func TestNetworkErrors(t *testing.T) {
	r := newRegion(t)
	n := r.createTestNetwork(t)
	subnet := func(cidr string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := r.CreateSubnet(ctx, &client.CreateSubnetInput{VpcId: &n.vpc, CidrBlock: &cidr})
			return err
		}
	}
	route := func(in client.CreateRouteInput) func(context.Context) error {
		in.RouteTableId = &n.table
		return func(ctx context.Context) error {
			_, err := r.CreateRoute(ctx, &in)
			return err
		}
	}
	for _, s := range []step{
		{"overlapping subnet", subnet("10.0.1.128/25"), "InvalidSubnet.Conflict"},
		{"subnet outside", subnet("10.1.0.0/24"), "InvalidSubnet.Range"},
		{"subnet too small", subnet("10.0.9.0/29"), "InvalidSubnet.Range"},
		{"subnet no range", subnet("10.0.9.0"), "InvalidParameterValue"},
		{"subnet in no zone", func(ctx context.Context) error {
			_, err := r.CreateSubnet(ctx, &client.CreateSubnetInput{VpcId: &n.vpc, CidrBlock: aws.String("10.0.9.0/24"), AvailabilityZone: aws.String("us-east-1z")})
			return err
		}, "InvalidParameterValue"},
		{"same route to elsewhere", route(client.CreateRouteInput{DestinationCidrBlock: aws.String("0.0.0.0/0"), GatewayId: &n.igw}), "RouteAlreadyExists"},
		{"route to no gateway", route(client.CreateRouteInput{DestinationCidrBlock: aws.String("1.0.0.0/8"), GatewayId: aws.String("igw-00000000000000000")}), "InvalidInternetGatewayID.NotFound"},
		{"route to no NAT", route(client.CreateRouteInput{DestinationCidrBlock: aws.String("1.0.0.0/8"), NatGatewayId: aws.String("nat-00000000000000000")}), "InvalidNatGatewayID.NotFound"},
		{"route to two", route(client.CreateRouteInput{DestinationCidrBlock: aws.String("1.0.0.0/8"), NatGatewayId: &n.nat, GatewayId: &n.igw}), "InvalidParameterCombination"},
		{"NAT on a taken address", func(ctx context.Context) error {
			_, err := r.CreateNatGateway(ctx, &client.CreateNatGatewayInput{SubnetId: &n.public, AllocationId: &n.eip})
			return err
		}, "Resource.AlreadyAssociated"},
		{"unknown filter", func(ctx context.Context) error {
			_, err := r.DescribeSubnets(ctx, &client.DescribeSubnetsInput{Filters: []types.Filter{{Name: aws.String("colour"), Values: []string{"red"}}}})
			return err
		}, "InvalidParameterValue"},
		{"second gateway", func(ctx context.Context) error {
			g, err := r.CreateInternetGateway(ctx, &client.CreateInternetGatewayInput{})
			if err != nil {
				return err
			}
			_, err = r.AttachInternetGateway(ctx, &client.AttachInternetGatewayInput{InternetGatewayId: g.InternetGateway.InternetGatewayId, VpcId: &n.vpc})
			return err
		}, "InvalidParameterValue"},
	} {
		if got := code(s.do(t.Context())); got != s.want {
			t.Errorf("%s: got %q, want %q", s.name, got, s.want)
		}
	}
}

func TestQuotas(t *testing.T) {
	r := newRegion(t)
	for range 5 {
		must[*client.AllocateAddressOutput](t)(r.AllocateAddress(t.Context(), &client.AllocateAddressInput{}))
		must[*client.CreateVpcOutput](t)(r.CreateVpc(t.Context(), &client.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")}))
	}
	_, err := r.AllocateAddress(t.Context(), &client.AllocateAddressInput{})
	if code(err) != "AddressLimitExceeded" {
		t.Errorf("a sixth address: %v", err)
	}
	_, err = r.CreateVpc(t.Context(), &client.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
	if code(err) != "VpcLimitExceeded" {
		t.Errorf("a sixth VPC: %v", err)
	}
}

func TestPagingReturnsEachOnce(t *testing.T) {
	r := newRegion(t)
	vpc, _ := r.createVPCWithSubnet(t)
	for i := range 7 {
		must[*client.CreateRouteTableOutput](t)(r.CreateRouteTable(t.Context(), &client.CreateRouteTableInput{
			VpcId: &vpc, TagSpecifications: tags("route-table", "even", map[bool]string{true: "yes", false: "no"}[i%2 == 0]),
		}))
	}
	seen, pages := map[string]int{}, client.NewDescribeRouteTablesPaginator(r.Client, &client.DescribeRouteTablesInput{
		MaxResults: aws.Int32(5), Filters: []types.Filter{{Name: aws.String("tag-key"), Values: []string{"even"}}},
	})
	calls := 0
	for pages.HasMorePages() {
		out := must[*client.DescribeRouteTablesOutput](t)(pages.NextPage(t.Context()))
		calls++
		for _, x := range out.RouteTables {
			seen[*x.RouteTableId]++
		}
	}
	if len(seen) != 7 || calls != 2 {
		t.Errorf("%d tables in %d calls, want 7 in 2", len(seen), calls)
	}
}

func TestNATGatewayStates(t *testing.T) {
	r := newRegion(t)
	n := r.createTestNetwork(t)
	state := func() types.NatGatewayState {
		out := must[*client.DescribeNatGatewaysOutput](t)(r.DescribeNatGateways(t.Context(), &client.DescribeNatGatewaysInput{NatGatewayIds: []string{n.nat}}))
		return out.NatGateways[0].State
	}
	got := []types.NatGatewayState{state()}
	must[*client.DeleteNatGatewayOutput](t)(r.DeleteNatGateway(t.Context(), &client.DeleteNatGatewayInput{NatGatewayId: &n.nat}))
	got = append(got, state())
	r.clock.Add(time.Second)
	got = append(got, state())
	if diff := cmp.Diff([]types.NatGatewayState{"available", "deleting", "deleted"}, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	tables := must[*client.DescribeRouteTablesOutput](t)(r.DescribeRouteTables(t.Context(), &client.DescribeRouteTablesInput{RouteTableIds: []string{n.table}}))
	if got := tables.RouteTables[0].Routes[1].State; got != types.RouteStateBlackhole {
		t.Errorf("the route through the deleted gateway is %s, want blackhole", got)
	}
	r.clock.Add(2 * time.Hour)
	_, err := r.DescribeNatGateways(t.Context(), &client.DescribeNatGatewaysInput{NatGatewayIds: []string{n.nat}})
	if code(err) != "NatGatewayNotFound" {
		t.Errorf("after two hours: %v", err)
	}
}
