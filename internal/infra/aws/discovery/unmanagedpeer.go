// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/unmanaged"
)

type peerAPI interface {
	ec2.DescribeVpcsAPIClient
	ec2.DescribeRouteTablesAPIClient
	ec2.DescribeVpcPeeringConnectionsAPIClient
}

// readPeerVPCs reads the peer VPCs that the manifest names, with their route tables.
func readPeerVPCs(
	ctx context.Context,
	api peerAPI,
	c v1alpha1.Cluster,
	owns OwnsFunc,
	f *unmanaged.Facts,
) error {
	var ids []string
	for _, p := range c.Spec.Networking.VPCPeerings {
		ids = append(ids, p.NetworkID)
	}

	if len(ids) == 0 {
		return nil
	}

	list := ec2.NewDescribeVpcsPaginator(api, &ec2.DescribeVpcsInput{Filters: driver.NewFilters("vpc-id", ids...)})
	vpcs, err := transport.CollectPages(ctx, list, func(p *ec2.DescribeVpcsOutput) []ec2types.Vpc { return p.Vpcs })
	if err != nil {
		return transport.Wrap(err, "describe %s", strings.Join(ids, ", "))
	}

	f.Peers = map[string]unmanaged.PeerVPC{}

	for _, v := range vpcs {
		p := unmanaged.PeerVPC{RouteTables: map[string][]unmanaged.OwnedRange{}}
		for _, a := range v.CidrBlockAssociationSet {
			p.CIDRs = append(p.CIDRs, aws.ToString(a.CidrBlock))
		}

		f.Peers[aws.ToString(v.VpcId)] = p
	}

	own, err := listOwnPeerings(ctx, api, c.Metadata.Name, owns)
	if err != nil {
		return err
	}

	pages := ec2.NewDescribeRouteTablesPaginator(
		api,
		&ec2.DescribeRouteTablesInput{Filters: driver.NewFilters("vpc-id", ids...)},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the route tables of %s", strings.Join(ids, ", "))
		}

		for _, t := range page.RouteTables {
			if p, ok := f.Peers[aws.ToString(t.VpcId)]; ok {
				p.RouteTables[aws.ToString(t.RouteTableId)] = listOtherRoutes(t, own)
			}
		}
	}

	return nil
}

// listOwnPeerings returns the ids of the cluster's peerings, including deleted ones.
func listOwnPeerings(
	ctx context.Context,
	api peerAPI,
	cluster string,
	owns OwnsFunc,
) (map[string]bool, error) {
	out := map[string]bool{}
	pages := ec2.NewDescribeVpcPeeringConnectionsPaginator(
		api,
		&ec2.DescribeVpcPeeringConnectionsInput{Filters: driver.NewFilters("tag:"+awskind.TagCluster, cluster)},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list VPC peerings")
		}

		for _, p := range page.VpcPeeringConnections {
			if owns(driver.FromEC2Tags(p.Tags)) {
				out[aws.ToString(p.VpcPeeringConnectionId)] = true
			}
		}
	}

	return out, nil
}

// listOtherRoutes returns the routes of a table except those to the cluster's own peerings.
func listOtherRoutes(t ec2types.RouteTable, own map[string]bool) []unmanaged.OwnedRange {
	var out []unmanaged.OwnedRange
	for _, r := range t.Routes {
		if own[aws.ToString(r.VpcPeeringConnectionId)] {
			continue
		}

		targets := []*string{
			r.GatewayId,
			r.NatGatewayId,
			r.VpcPeeringConnectionId,
			r.TransitGatewayId,
			r.NetworkInterfaceId,
			r.CoreNetworkArn,
		}

		owner := "elsewhere"

		for _, id := range targets {
			if s := aws.ToString(id); s != "" {
				owner = s
			}
		}

		out = append(out, unmanaged.OwnedRange{CIDR: aws.ToString(r.DestinationCidrBlock), Owner: owner})
	}

	return out
}
