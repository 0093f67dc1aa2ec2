// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// tokenCase creates a resource with a client token, deletes it, and tells how many exist that are not deleted.
type tokenCase struct {
	create func(ctx context.Context) (string, error)
	remove func(ctx context.Context, id string) error
	count  func(ctx context.Context) (int, error)
}

// tokenCases has one case for each operation that answers with a resource which can be gone.
func tokenCases(r region, vpc, subnet string) map[string]tokenCase {
	token := aws.String("one")
	return map[string]tokenCase{
		"interface": {
			create: func(ctx context.Context) (string, error) {
				out, err := r.CreateNetworkInterface(ctx, &client.CreateNetworkInterfaceInput{SubnetId: &subnet, ClientToken: token})
				if err != nil || out.NetworkInterface == nil {
					return "", err
				}
				return aws.ToString(out.NetworkInterface.NetworkInterfaceId), nil
			},
			remove: func(ctx context.Context, id string) error {
				_, err := r.DeleteNetworkInterface(ctx, &client.DeleteNetworkInterfaceInput{NetworkInterfaceId: &id})
				return err
			},
			count: func(ctx context.Context) (int, error) {
				out, err := r.DescribeNetworkInterfaces(ctx, &client.DescribeNetworkInterfacesInput{Filters: filters("vpc-id", vpc)})
				return len(out.NetworkInterfaces), err
			},
		},
		"endpoint": {
			create: func(ctx context.Context) (string, error) {
				out, err := r.CreateVpcEndpoint(ctx, &client.CreateVpcEndpointInput{
					VpcId: &vpc, ServiceName: aws.String("com.amazonaws.us-east-1.s3"), ClientToken: token,
				})
				if err != nil {
					return "", err
				}
				return *out.VpcEndpoint.VpcEndpointId, nil
			},
			remove: func(ctx context.Context, id string) error {
				_, err := r.DeleteVpcEndpoints(ctx, &client.DeleteVpcEndpointsInput{VpcEndpointIds: []string{id}})
				return err
			},
			count: func(ctx context.Context) (int, error) {
				out, err := r.DescribeVpcEndpoints(ctx, &client.DescribeVpcEndpointsInput{Filters: filters("vpc-endpoint-state", "available")})
				return len(out.VpcEndpoints), err
			},
		},
		"route table": {
			create: func(ctx context.Context) (string, error) {
				out, err := r.CreateRouteTable(ctx, &client.CreateRouteTableInput{VpcId: &vpc, ClientToken: token})
				if err != nil {
					return "", err
				}
				return *out.RouteTable.RouteTableId, nil
			},
			remove: func(ctx context.Context, id string) error {
				_, err := r.DeleteRouteTable(ctx, &client.DeleteRouteTableInput{RouteTableId: &id})
				return err
			},
			count: func(ctx context.Context) (int, error) {
				out, err := r.DescribeRouteTables(ctx, &client.DescribeRouteTablesInput{Filters: filters("vpc-id", vpc)})
				return len(out.RouteTables) - 1, err // the main table is always there
			},
		},
		"launch template": {
			create: func(ctx context.Context) (string, error) {
				out, err := r.CreateLaunchTemplate(ctx, &client.CreateLaunchTemplateInput{
					LaunchTemplateName: aws.String("one"), ClientToken: token,
					LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: aws.String(image)},
				})
				if err != nil {
					return "", err
				}
				return *out.LaunchTemplate.LaunchTemplateId, nil
			},
			remove: func(ctx context.Context, id string) error {
				_, err := r.DeleteLaunchTemplate(ctx, &client.DeleteLaunchTemplateInput{LaunchTemplateId: &id})
				return err
			},
			count: func(ctx context.Context) (int, error) {
				out, err := r.DescribeLaunchTemplates(ctx, &client.DescribeLaunchTemplatesInput{})
				return len(out.LaunchTemplates), err
			},
		},
	}
}

// TestTokensOfDeletedResources: a request with a client token that was used is answered with the resource of the first request and
// creates nothing, also after that was deleted.
func TestTokensOfDeletedResources(t *testing.T) {
	for _, name := range []string{"interface", "endpoint", "route table", "launch template"} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			ctx := t.Context()
			vpc, subnet := r.createVPCWithSubnet(t)
			c := tokenCases(r, vpc, subnet)[name]
			first := must[string](t)(c.create(ctx))
			if again := must[string](t)(c.create(ctx)); again != first {
				t.Errorf("a repeated request answered %q, want %s", again, first)
			}
			if err := c.remove(ctx, first); err != nil {
				t.Fatal(err)
			}
			if again := must[string](t)(c.create(ctx)); again != first {
				t.Errorf("a repeated request after the deletion answered %q, want %s", again, first)
			}
			if n := must[int](t)(c.count(ctx)); n != 0 {
				t.Errorf("a repeated request after the deletion left %d resources", n)
			}
		})
	}
}
