// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type peeringAPI interface {
	tagAPI
	DescribeVpcPeeringConnections(
		context.Context,
		*ec2.DescribeVpcPeeringConnectionsInput,
		...func(*ec2.Options),
	) (*ec2.DescribeVpcPeeringConnectionsOutput, error)
	CreateVpcPeeringConnection(
		context.Context,
		*ec2.CreateVpcPeeringConnectionInput,
		...func(*ec2.Options),
	) (*ec2.CreateVpcPeeringConnectionOutput, error)
	AcceptVpcPeeringConnection(
		context.Context,
		*ec2.AcceptVpcPeeringConnectionInput,
		...func(*ec2.Options),
	) (*ec2.AcceptVpcPeeringConnectionOutput, error)
	DeleteVpcPeeringConnection(
		context.Context,
		*ec2.DeleteVpcPeeringConnectionInput,
		...func(*ec2.Options),
	) (*ec2.DeleteVpcPeeringConnectionOutput, error)
	DescribeRouteTables(
		context.Context,
		*ec2.DescribeRouteTablesInput,
		...func(*ec2.Options),
	) (*ec2.DescribeRouteTablesOutput, error)
}

// registerPeerings drives VPC peerings, and finds through them the routes back in tables that are not ours.
func registerPeerings(c *Cloud, api peeringAPI, scope Scope) {
	c.addReader(
		func(ctx context.Context) ([]plan.ActualResource, error) { return readPeerings(ctx, api, scope) },
		awskind.VPCPeering{},
		awskind.Route{},
	)

	accept := func(ctx context.Context, id string, wanted bool) error {
		if !wanted {
			return nil
		}

		_, err := api.AcceptVpcPeeringConnection(
			ctx,
			&ec2.AcceptVpcPeeringConnectionInput{VpcPeeringConnectionId: &id},
		)

		return transport.Wrap(err, "accept %s", id)
	}

	registerDriver(c, driver[awskind.VPCPeering]{
		create: func(ctx context.Context, t task[awskind.VPCPeering]) (plan.StepResult, error) {
			vpc := t.want.VPC.Literal()
			peer := t.want.Peer.Literal()
			out, err := api.CreateVpcPeeringConnection(ctx, &ec2.CreateVpcPeeringConnectionInput{
				VpcId: &vpc, PeerVpcId: &peer, TagSpecifications: tagSpecifications(ec2types.ResourceTypeVpcPeeringConnection, t.want.Tags),
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "peer %s with %s", vpc, peer)
			}

			id := aws.ToString(out.VpcPeeringConnection.VpcPeeringConnectionId)

			return plan.StepResult{ID: id}, transport.MarkNotRetryable(accept(ctx, id, t.want.Accepted), id)
		},
		update: func(ctx context.Context, t task[awskind.VPCPeering]) (plan.StepResult, error) {
			if err := accept(ctx, t.id, t.want.Accepted && !t.have.Accepted); err != nil {
				return plan.StepResult{}, err
			}

			return keepIdentity(t), retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: func(ctx context.Context, t task[awskind.VPCPeering]) error {
			_, err := api.DeleteVpcPeeringConnection(
				ctx,
				&ec2.DeleteVpcPeeringConnectionInput{VpcPeeringConnectionId: &t.id},
			)

			return transport.Wrap(err, "delete")
		},
	})
}

func readPeerings(ctx context.Context, api peeringAPI, scope Scope) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	var ids []string
	pages := ec2.NewDescribeVpcPeeringConnectionsPaginator(
		api,
		&ec2.DescribeVpcPeeringConnectionsInput{Filters: clusterFilters(scope)},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list VPC peerings")
		}

		for _, p := range page.VpcPeeringConnections {
			id := aws.ToString(p.VpcPeeringConnectionId)
			ids = append(ids, id) // also of one that has ended: its routes have not
			if r, alive := fromPeering(p); alive {
				out = append(out, plan.ActualResource{Addr: addressFromTags(r.Tags), ID: id, Resource: r})
			}
		}
	}

	if len(ids) == 0 {
		return nil, nil
	}

	back, err := readPeerRoutes(ctx, api, scope, ids)

	return append(out, back...), err
}

// fromPeering is a peering as we know it; false for one that has ended or failed, which AWS lists for hours more.
func fromPeering(p ec2types.VpcPeeringConnection) (awskind.VPCPeering, bool) {
	if p.Status == nil || p.RequesterVpcInfo == nil || p.AccepterVpcInfo == nil {
		return awskind.VPCPeering{}, false
	}

	waiting := p.Status.Code == ec2types.VpcPeeringConnectionStateReasonCodePendingAcceptance
	alive := []ec2types.VpcPeeringConnectionStateReasonCode{
		ec2types.VpcPeeringConnectionStateReasonCodeActive, ec2types.VpcPeeringConnectionStateReasonCodeProvisioning,
		ec2types.VpcPeeringConnectionStateReasonCodeInitiatingRequest,
	}

	return awskind.VPCPeering{
		VPC:      graph.UnmanagedRef[awskind.VPC](aws.ToString(p.RequesterVpcInfo.VpcId)),
		Peer:     graph.UnmanagedRef[awskind.VPC](aws.ToString(p.AccepterVpcInfo.VpcId)),
		Accepted: !waiting,
		Tags:     FromEC2Tags(p.Tags),
	}, waiting || slices.Contains(alive, p.Status.Code)
}

// readPeerRoutes finds the routes to our peerings in tables that do not bear our tag: others' tables with our routes.
func readPeerRoutes(
	ctx context.Context,
	api peeringAPI,
	scope Scope,
	ids []string,
) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	pages := ec2.NewDescribeRouteTablesPaginator(
		api,
		&ec2.DescribeRouteTablesInput{Filters: NewFilters("route.vpc-peering-connection-id", ids...)},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the routes back")
		}

		for _, rt := range page.RouteTables {
			if FromEC2Tags(rt.Tags)[awskind.TagCluster] == scope.Cluster {
				continue
			}

			for _, a := range fromRouteTable(rt) {
				if r, ok := a.Resource.(awskind.Route); ok && slices.Contains(ids, r.Peering.Literal()) {
					out = append(out, a)
				}
			}
		}
	}

	return out, nil
}
