// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// fullTable is EC2 with one route table, which has a route and an association already and refuses further ones.
type fullTable struct{ routeTableAPI }

func (fullTable) CreateRoute(
	context.Context, *ec2.CreateRouteInput, ...func(*ec2.Options),
) (*ec2.CreateRouteOutput, error) {
	return nil, &smithy.GenericAPIError{Code: "RouteAlreadyExists"}
}

func (fullTable) ReplaceRoute(
	context.Context, *ec2.ReplaceRouteInput, ...func(*ec2.Options),
) (*ec2.ReplaceRouteOutput, error) {
	panic("a route that nobody planned to change is replaced")
}

func (fullTable) DeleteRoute(
	context.Context, *ec2.DeleteRouteInput, ...func(*ec2.Options),
) (*ec2.DeleteRouteOutput, error) {
	panic("a route that nobody planned to delete is deleted")
}

func (fullTable) AssociateRouteTable(
	context.Context, *ec2.AssociateRouteTableInput, ...func(*ec2.Options),
) (*ec2.AssociateRouteTableOutput, error) {
	return nil, &smithy.GenericAPIError{Code: "Resource.AlreadyAssociated"}
}

func (fullTable) DescribeRouteTables(
	_ context.Context, in *ec2.DescribeRouteTablesInput, _ ...func(*ec2.Options),
) (*ec2.DescribeRouteTablesOutput, error) {
	return &ec2.DescribeRouteTablesOutput{RouteTables: []ec2types.RouteTable{{
		RouteTableId: aws.String(in.RouteTableIds[0]),
		Routes: []ec2types.Route{
			{DestinationCidrBlock: aws.String("0.0.0.0/0"), NatGatewayId: aws.String("nat-1")},
		},
		Associations: []ec2types.RouteTableAssociation{
			{RouteTableAssociationId: aws.String("rtbassoc-1"), SubnetId: aws.String("subnet-1")},
		},
	}}}, nil
}

// TestExistingRoutes: a plan that does not see a route or an association yet, because AWS did not list it, creates it
// again. That succeeds if it is the very same one, and changes nothing if it is another one.
func TestExistingRoutes(t *testing.T) {
	c := &Cloud{kinds: map[string]untypedDriver{}}
	registerRoutes(c, fullTable{})
	registerRouteTableAssociations(c, fullTable{})

	table := graph.UnmanagedRef[awskind.RouteTable]("rtb-1")
	route := func(gateway string) graph.Resource {
		return awskind.Route{
			Table: table, Destination: "0.0.0.0/0", NAT: graph.UnmanagedRef[awskind.NATGateway](gateway),
		}
	}
	association := func(subnet string) graph.Resource {
		return awskind.RouteTableAssociation{Table: table, Subnet: graph.UnmanagedRef[awskind.Subnet](subnet)}
	}

	for name, tt := range map[string]struct {
		want   graph.Resource
		wantID string
	}{
		"the same route":         {want: route("nat-1"), wantID: "rtb-1/0.0.0.0/0"},
		"a route to elsewhere":   {want: route("nat-2")},
		"the same association":   {want: association("subnet-1"), wantID: "rtbassoc-1"},
		"another table's subnet": {want: association("subnet-2")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.Create(t.Context(), plan.Task{
				Step:          plan.Step{Kind: tt.want.Kind().Name},
				Desired:       tt.want,
				ReportWaiting: func(string) {},
			})
			if tt.wantID == "" && err == nil {
				t.Errorf("created %v", got)
			}

			if tt.wantID != "" && (err != nil || got.ID != tt.wantID) {
				t.Errorf("created %v, %v, want %s", got, err, tt.wantID)
			}
		})
	}
}

// TestMustBeListed: EndPlan waits for what a deletion must find. A route to a peering may be in an unmanaged table.
func TestMustBeListed(t *testing.T) {
	peering := graph.UnmanagedRef[awskind.VPCPeering]("pcx-1")
	for name, tt := range map[string]struct {
		created graph.Resource
		want    bool
	}{
		"subnet":             {created: awskind.Subnet{}, want: true},
		"route":              {created: awskind.Route{}},
		"route to a peering": {created: awskind.Route{Peering: peering}, want: true},
		"association":        {created: awskind.RouteTableAssociation{}},
	} {
		if got := mustBeListed(tt.created); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
