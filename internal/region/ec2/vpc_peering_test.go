// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestPeering requests, accepts, uses and deletes a peering connection. Then its routes are blackholes, and the VPCs can
// be peered again.
func TestPeering(t *testing.T) {
	r, ctx := newRegion(t), t.Context()
	n := r.createTestNetwork(t)
	vpc := func(cidr string) *string {
		return must[*client.CreateVpcOutput](t)(r.CreateVpc(ctx, &client.CreateVpcInput{CidrBlock: &cidr})).Vpc.VpcId
	}
	theirs := vpc("10.200.0.0/16")
	ask := func(a, b *string) (*client.CreateVpcPeeringConnectionOutput, error) {
		return r.CreateVpcPeeringConnection(ctx, &client.CreateVpcPeeringConnectionInput{VpcId: a, PeerVpcId: b})
	}
	made := must[*client.CreateVpcPeeringConnectionOutput](t)(ask(&n.vpc, theirs)).VpcPeeringConnection
	id := made.VpcPeeringConnectionId
	accept := &client.AcceptVpcPeeringConnectionInput{VpcPeeringConnectionId: id}
	remove := &client.DeleteVpcPeeringConnectionInput{VpcPeeringConnectionId: id}
	checkState := func(want types.VpcPeeringConnectionStateReasonCode) {
		t.Helper()
		got := must[*client.DescribeVpcPeeringConnectionsOutput](t)(r.DescribeVpcPeeringConnections(ctx, &client.DescribeVpcPeeringConnectionsInput{
			Filters: []types.Filter{{Name: aws.String("status-code"), Values: []string{string(want)}}},
		})).VpcPeeringConnections
		if len(got) != 1 || *got[0].VpcPeeringConnectionId != *id {
			t.Errorf("%d connections are %s", len(got), want)
		}
	}
	if made.Status.Code != types.VpcPeeringConnectionStateReasonCodeInitiatingRequest {
		t.Errorf("a new connection is %s", made.Status.Code)
	}
	if _, err := r.AcceptVpcPeeringConnection(ctx, accept); code(err) != "InvalidStateTransition" {
		t.Errorf("accept before the request is processed: %v", err)
	}
	if _, err := r.DeleteVpcPeeringConnection(ctx, remove); code(err) != "InvalidStateTransition" {
		t.Errorf("delete before the request is processed: %v", err)
	}
	r.clock.Add(time.Second)
	checkState(types.VpcPeeringConnectionStateReasonCodePendingAcceptance)
	if _, err := ask(theirs, &n.vpc); code(err) != "VpcPeeringConnectionAlreadyExists" {
		t.Errorf("peer the same VPCs in the other direction: %v", err)
	}
	if _, err := ask(&n.vpc, &n.vpc); code(err) != "InvalidParameterValue" {
		t.Errorf("peer a VPC with itself: %v", err)
	}
	route := &client.CreateRouteInput{RouteTableId: &n.table, DestinationCidrBlock: aws.String("10.200.0.0/16"), VpcPeeringConnectionId: id}
	if _, err := r.CreateRoute(ctx, route); code(err) != "InvalidParameterValue" {
		t.Errorf("create a route before the connection is accepted: %v", err)
	}
	must[*client.AcceptVpcPeeringConnectionOutput](t)(r.AcceptVpcPeeringConnection(ctx, accept))
	checkState(types.VpcPeeringConnectionStateReasonCodeProvisioning)
	r.clock.Add(time.Second)
	checkState(types.VpcPeeringConnectionStateReasonCodeActive)
	if _, err := r.AcceptVpcPeeringConnection(ctx, accept); code(err) != "InvalidStateTransition" {
		t.Errorf("accept twice: %v", err)
	}
	must[*client.CreateRouteOutput](t)(r.CreateRoute(ctx, route))
	tables := func() []types.RouteTable {
		return must[*client.DescribeRouteTablesOutput](t)(r.DescribeRouteTables(ctx, &client.DescribeRouteTablesInput{
			Filters: []types.Filter{{Name: aws.String("route.vpc-peering-connection-id"), Values: []string{*id}}},
		})).RouteTables
	}
	if got := tables(); len(got) != 1 || *got[0].RouteTableId != n.table {
		t.Errorf("tables with a route through it: %v", got)
	}
	must[*client.DeleteVpcPeeringConnectionOutput](t)(r.DeleteVpcPeeringConnection(ctx, remove))
	for _, got := range tables()[0].Routes {
		if aws.ToString(got.VpcPeeringConnectionId) == *id && got.State != types.RouteStateBlackhole {
			t.Errorf("state of its route: %s", got.State)
		}
	}
	if again := must[*client.CreateVpcPeeringConnectionOutput](t)(ask(&n.vpc, theirs)).VpcPeeringConnection; *again.VpcPeeringConnectionId == *id {
		t.Error("the deleted connection was returned")
	}
	id = must[*client.CreateVpcPeeringConnectionOutput](t)(ask(theirs, vpc("10.200.8.0/24"))).VpcPeeringConnection.VpcPeeringConnectionId
	r.clock.Add(time.Second)
	checkState(types.VpcPeeringConnectionStateReasonCodeFailed)
}
