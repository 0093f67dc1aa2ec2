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
	ec2.DescribeVpcPeeringConnectionsAPIClient
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
	ec2.DescribeRouteTablesAPIClient
}

// registerPeerings registers the driver of VPC peerings. Its reader also finds the routes to them
// in unmanaged route tables.
func registerPeerings(c *Cloud, api peeringAPI, scope Scope) {
	c.readersByType[ec2types.ResourceTypeVpcPeeringConnection] = func(ctx context.Context) ([]plan.ActualResource, error) {
		return readPeerings(ctx, api, scope)
	}

	registerDriver(c, driver[awskind.VPCPeering]{
		create: func(ctx context.Context, t task[awskind.VPCPeering]) (plan.StepResult, error) {
			vpc := t.want.VPC.Literal()
			peer := t.want.Peer.Literal()
			out, err := api.CreateVpcPeeringConnection(ctx, &ec2.CreateVpcPeeringConnectionInput{
				VpcId:             &vpc,
				PeerVpcId:         &peer,
				TagSpecifications: tagSpecifications(ec2types.ResourceTypeVpcPeeringConnection, t.want.Tags),
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "peer %s with %s", vpc, peer)
			}

			id := aws.ToString(out.VpcPeeringConnection.VpcPeeringConnectionId)

			if t.want.Accepted {
				err = acceptPeering(ctx, api, id)
			}

			return plan.StepResult{ID: id}, transport.MarkNotRetryable(err, id)
		},
		update: func(ctx context.Context, t task[awskind.VPCPeering]) (plan.StepResult, error) {
			if t.want.Accepted && !t.have.Accepted {
				if err := acceptPeering(ctx, api, t.id); err != nil {
					return plan.StepResult{}, err
				}
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

func acceptPeering(ctx context.Context, api peeringAPI, id string) error {
	in := &ec2.AcceptVpcPeeringConnectionInput{VpcPeeringConnectionId: &id}
	_, err := api.AcceptVpcPeeringConnection(ctx, in)

	return transport.Wrap(err, "accept %s", id)
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
			ids = append(ids, id) // also of a deleted peering: its routes still exist
			if r, alive := fromPeering(p); alive {
				out = append(out, newActual(&id, r.Tags, r))
			}
		}
	}

	if len(ids) == 0 {
		return nil, nil
	}

	routes, err := readPeerRoutes(ctx, api, scope, ids)

	return append(out, routes...), err
}

// fromPeering returns a peering, and false if it is deleted or failed: AWS lists such peerings for
// hours.
func fromPeering(p ec2types.VpcPeeringConnection) (awskind.VPCPeering, bool) {
	if p.Status == nil || p.RequesterVpcInfo == nil || p.AccepterVpcInfo == nil {
		return awskind.VPCPeering{}, false
	}

	waiting := p.Status.Code == ec2types.VpcPeeringConnectionStateReasonCodePendingAcceptance
	alive := []ec2types.VpcPeeringConnectionStateReasonCode{
		ec2types.VpcPeeringConnectionStateReasonCodeActive,
		ec2types.VpcPeeringConnectionStateReasonCodeProvisioning,
		ec2types.VpcPeeringConnectionStateReasonCodeInitiatingRequest,
	}

	return awskind.VPCPeering{
		VPC:      graph.UnmanagedRef[awskind.VPC](aws.ToString(p.RequesterVpcInfo.VpcId)),
		Peer:     graph.UnmanagedRef[awskind.VPC](aws.ToString(p.AccepterVpcInfo.VpcId)),
		Accepted: !waiting,
		Tags:     FromEC2Tags(p.Tags),
	}, waiting || slices.Contains(alive, p.Status.Code)
}

// readPeerRoutes returns the routes to the peerings with ids in unmanaged route tables, which lack
// the cluster's tag.
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
			return nil, transport.Wrap(err, "list the routes to VPC peerings")
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
