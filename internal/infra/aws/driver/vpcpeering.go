// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
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

// peeringDriver creates, accepts and deletes VPC peerings.
type peeringDriver struct {
	api    peeringAPI
	poller *transport.StatePoller[ec2types.VpcPeeringConnection]
}

// registerPeerings registers the driver of VPC peerings. Its reader also finds the routes to them
// in unmanaged route tables.
func registerPeerings(c *Cloud, api peeringAPI, scope Scope) {
	c.readersByType[ec2types.ResourceTypeVpcPeeringConnection] = func(ctx context.Context) ([]plan.ActualResource, error) {
		return readPeerings(ctx, api, scope)
	}

	d := newPeeringDriver(api)
	registerDriver(c, driver[awskind.VPCPeering]{
		create: d.createPeering,
		update: func(ctx context.Context, t task[awskind.VPCPeering]) (plan.StepResult, error) {
			if t.want.Accepted && !t.have.Accepted {
				if err := d.acceptPeering(ctx, t, t.id); err != nil {
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

func newPeeringDriver(api peeringAPI) *peeringDriver {
	d := &peeringDriver{api: api}
	d.poller = &transport.StatePoller[ec2types.VpcPeeringConnection]{Describe: d.describeByID}

	return d
}

func (d *peeringDriver) createPeering(
	ctx context.Context,
	t task[awskind.VPCPeering],
) (plan.StepResult, error) {
	vpc := t.want.VPC.Literal()
	peer := t.want.Peer.Literal()
	out, err := d.api.CreateVpcPeeringConnection(ctx, &ec2.CreateVpcPeeringConnectionInput{
		VpcId:             &vpc,
		PeerVpcId:         &peer,
		TagSpecifications: tagSpecifications(ec2types.ResourceTypeVpcPeeringConnection, t.want.Tags),
	})
	if err != nil {
		return plan.StepResult{}, transport.Wrap(err, "peer %s with %s", vpc, peer)
	}

	id := aws.ToString(out.VpcPeeringConnection.VpcPeeringConnectionId)
	if t.want.Accepted {
		err = d.acceptPeering(ctx, t, id)
	}

	return plan.StepResult{ID: id}, transport.MarkNotRetryable(err, id)
}

// acceptPeering accepts a peering and waits until it is active. EC2 refuses to accept one whose request it has not
// processed yet.
func (d *peeringDriver) acceptPeering(ctx context.Context, t task[awskind.VPCPeering], id string) error {
	state, err := d.waitForState(ctx, t, id, ec2types.VpcPeeringConnectionStateReasonCodePendingAcceptance)
	if err != nil {
		return err
	}

	if state == ec2types.VpcPeeringConnectionStateReasonCodePendingAcceptance {
		in := &ec2.AcceptVpcPeeringConnectionInput{VpcPeeringConnectionId: &id}
		if _, err := d.api.AcceptVpcPeeringConnection(ctx, in); err != nil {
			return transport.Wrap(err, "accept %s", id)
		}
	}

	_, err = d.waitForState(ctx, t, id, "")

	return err
}

// waitForState waits until a peering is active or in a state before that, and returns the state it has.
func (d *peeringDriver) waitForState(
	ctx context.Context,
	t task[awskind.VPCPeering],
	id string,
	before ec2types.VpcPeeringConnectionStateReasonCode,
) (ec2types.VpcPeeringConnectionStateReasonCode, error) {
	var state ec2types.VpcPeeringConnectionStateReasonCode
	err := d.poller.WaitUntil(ctx, id, func(p ec2types.VpcPeeringConnection, found bool) (bool, error) {
		if !found || p.Status == nil {
			return false, nil
		}

		state = p.Status.Code
		t.reportWaiting(id + " is " + string(state))

		if slices.Contains(endedPeeringStates(), state) {
			return false, fmt.Errorf("%s is %s: %s", id, state, aws.ToString(p.Status.Message))
		}

		return state == ec2types.VpcPeeringConnectionStateReasonCodeActive || state == before, nil
	})

	return state, err
}

// endedPeeringStates are the states of peerings that never become active.
func endedPeeringStates() []ec2types.VpcPeeringConnectionStateReasonCode {
	return []ec2types.VpcPeeringConnectionStateReasonCode{
		ec2types.VpcPeeringConnectionStateReasonCodeFailed,
		ec2types.VpcPeeringConnectionStateReasonCodeRejected,
		ec2types.VpcPeeringConnectionStateReasonCodeExpired,
		ec2types.VpcPeeringConnectionStateReasonCodeDeleting,
		ec2types.VpcPeeringConnectionStateReasonCodeDeleted,
	}
}

// describeByID returns the peerings with ids.
func (d *peeringDriver) describeByID(
	ctx context.Context,
	ids []string,
) (map[string]ec2types.VpcPeeringConnection, error) {
	out := map[string]ec2types.VpcPeeringConnection{}
	pages := ec2.NewDescribeVpcPeeringConnectionsPaginator(
		d.api,
		&ec2.DescribeVpcPeeringConnectionsInput{Filters: NewFilters("vpc-peering-connection-id", ids...)},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "read the states of VPC peerings")
		}

		for _, p := range page.VpcPeeringConnections {
			out[aws.ToString(p.VpcPeeringConnectionId)] = p
		}
	}

	return out, nil
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

	accepted := []ec2types.VpcPeeringConnectionStateReasonCode{
		ec2types.VpcPeeringConnectionStateReasonCodeActive,
		ec2types.VpcPeeringConnectionStateReasonCodeProvisioning,
	}
	waiting := []ec2types.VpcPeeringConnectionStateReasonCode{
		ec2types.VpcPeeringConnectionStateReasonCodePendingAcceptance,
		ec2types.VpcPeeringConnectionStateReasonCodeInitiatingRequest,
	}
	isAccepted := slices.Contains(accepted, p.Status.Code)

	return awskind.VPCPeering{
		VPC:      graph.UnmanagedRef[awskind.VPC](aws.ToString(p.RequesterVpcInfo.VpcId)),
		Peer:     graph.UnmanagedRef[awskind.VPC](aws.ToString(p.AccepterVpcInfo.VpcId)),
		Accepted: isAccepted,
		Tags:     FromEC2Tags(p.Tags),
	}, isAccepted || slices.Contains(waiting, p.Status.Code)
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
