// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type endpointAPI interface {
	tagAPI
	ec2.DescribeVpcEndpointsAPIClient
	CreateVpcEndpoint(
		context.Context,
		*ec2.CreateVpcEndpointInput,
		...func(*ec2.Options),
	) (*ec2.CreateVpcEndpointOutput, error)
	ModifyVpcEndpoint(
		context.Context,
		*ec2.ModifyVpcEndpointInput,
		...func(*ec2.Options),
	) (*ec2.ModifyVpcEndpointOutput, error)
	DeleteVpcEndpoints(
		context.Context,
		*ec2.DeleteVpcEndpointsInput,
		...func(*ec2.Options),
	) (*ec2.DeleteVpcEndpointsOutput, error)
}

// endpointDriver is the driver of VPC endpoints.
type endpointDriver struct {
	api    endpointAPI
	scope  Scope
	poller *transport.StatePoller[ec2types.VpcEndpoint]
}

// registerEndpoints registers the driver of VPC endpoints. Instances that depend on an endpoint can
// do nothing before it is available, so its creation waits. Its network interfaces keep subnets and
// security groups in use until it is deleted, so its deletion waits too.
func registerEndpoints(c *Cloud, api endpointAPI, scope Scope) {
	d := &endpointDriver{api: api, scope: scope}
	d.poller = &transport.StatePoller[ec2types.VpcEndpoint]{Describe: d.describeAll}

	read := func(ctx context.Context) ([]plan.ActualResource, error) { return readEndpoints(ctx, api, scope) }
	c.readersByType[ec2types.ResourceTypeVpcEndpoint] = read

	registerDriver(c, driver[awskind.VPCEndpoint]{
		create: d.createEndpoint,
		update: func(ctx context.Context, t task[awskind.VPCEndpoint]) (plan.StepResult, error) {
			if err := modifyEndpoint(ctx, api, t); err != nil {
				return plan.StepResult{}, err
			}

			return keepIdentity(t), retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: d.deleteEndpoint,
	})
}

// describeAll returns all endpoints of the cluster. If AWS were asked for them by id, one that is
// deleted would fail the call for all.
func (d *endpointDriver) describeAll(
	ctx context.Context,
	_ []string,
) (map[string]ec2types.VpcEndpoint, error) {
	list, err := describeEndpoints(ctx, d.api, clusterFilters(d.scope))

	out := map[string]ec2types.VpcEndpoint{}
	for _, e := range list {
		out[aws.ToString(e.VpcEndpointId)] = e
	}

	return out, err
}

func (d *endpointDriver) createEndpoint(
	ctx context.Context,
	t task[awskind.VPCEndpoint],
) (plan.StepResult, error) {
	id, err := callCreateEndpoint(ctx, d.api, t.want)
	if err != nil {
		return plan.StepResult{}, err
	}

	err = d.poller.WaitUntil(ctx, id, func(e ec2types.VpcEndpoint, found bool) (bool, error) {
		t.reportWaiting(id + " is " + string(e.State))
		if state := strings.ToLower(string(e.State)); state == "failed" || state == "rejected" {
			return false, fmt.Errorf("%s is %s", id, state)
		}

		return found && strings.EqualFold(string(e.State), string(ec2types.StateAvailable)), nil
	})

	return plan.StepResult{ID: id}, transport.MarkNotRetryable(err, id)
}

func (d *endpointDriver) deleteEndpoint(ctx context.Context, t task[awskind.VPCEndpoint]) error {
	out, err := d.api.DeleteVpcEndpoints(ctx, &ec2.DeleteVpcEndpointsInput{VpcEndpointIds: []string{t.id}})
	if err != nil {
		return transport.Wrap(err, "delete")
	}

	for _, u := range out.Unsuccessful {
		if u.Error != nil && !strings.HasSuffix(aws.ToString(u.Error.Code), ".NotFound") {
			return fmt.Errorf(
				"delete %s: %s: %s",
				t.id,
				aws.ToString(u.Error.Code),
				aws.ToString(u.Error.Message),
			)
		}
	}

	return d.poller.WaitUntil(ctx, t.id, func(e ec2types.VpcEndpoint, found bool) (bool, error) {
		t.reportWaiting(t.id + " is " + string(e.State))
		return !found || strings.EqualFold(string(e.State), string(ec2types.StateDeleted)), nil
	})
}

// callCreateEndpoint creates an endpoint and returns its id.
func callCreateEndpoint(ctx context.Context, api endpointAPI, want awskind.VPCEndpoint) (string, error) {
	in := &ec2.CreateVpcEndpointInput{
		VpcId:             aws.String(want.VPC.Literal()),
		ServiceName:       &want.Service,
		VpcEndpointType:   ec2types.VpcEndpointType(want.Type),
		RouteTableIds:     refIDs(want.RouteTables),
		SubnetIds:         refIDs(want.Subnets),
		SecurityGroupIds:  refIDs(want.SecurityGroups),
		TagSpecifications: tagSpecifications(ec2types.ResourceTypeVpcEndpoint, want.Tags),
	}
	if want.Type == awskind.EndpointInterface {
		in.PrivateDnsEnabled = &want.PrivateDNS
	}

	out, err := api.CreateVpcEndpoint(ctx, in)
	if err != nil {
		return "", transport.Wrap(err, "create endpoint for %s", want.Service)
	}

	return aws.ToString(out.VpcEndpoint.VpcEndpointId), nil
}

// modifyEndpoint changes what differs, with one call, or with none if nothing differs.
func modifyEndpoint(ctx context.Context, api endpointAPI, t task[awskind.VPCEndpoint]) error {
	in := &ec2.ModifyVpcEndpointInput{VpcEndpointId: &t.id}
	in.AddRouteTableIds, in.RemoveRouteTableIds = diffLists(
		refIDs(t.want.RouteTables),
		refIDs(t.have.RouteTables),
	)

	in.AddSubnetIds, in.RemoveSubnetIds = diffLists(refIDs(t.want.Subnets), refIDs(t.have.Subnets))
	in.AddSecurityGroupIds, in.RemoveSecurityGroupIds = diffLists(
		refIDs(t.want.SecurityGroups),
		refIDs(t.have.SecurityGroups),
	)

	changes := 0
	for _, ids := range [][]string{
		in.AddRouteTableIds,
		in.RemoveRouteTableIds,
		in.AddSubnetIds,
		in.RemoveSubnetIds,
		in.AddSecurityGroupIds,
		in.RemoveSecurityGroupIds,
	} {
		changes += len(ids)
	}

	if t.want.PrivateDNS != t.have.PrivateDNS {
		in.PrivateDnsEnabled = &t.want.PrivateDNS
		changes++
	}

	if changes == 0 {
		return nil
	}

	_, err := api.ModifyVpcEndpoint(ctx, in)

	return transport.Wrap(err, "modify %s", t.id)
}

func describeEndpoints(
	ctx context.Context,
	api endpointAPI,
	filters []ec2types.Filter,
) ([]ec2types.VpcEndpoint, error) {
	var out []ec2types.VpcEndpoint
	pages := ec2.NewDescribeVpcEndpointsPaginator(api, &ec2.DescribeVpcEndpointsInput{Filters: filters})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list VPC endpoints")
		}

		out = append(out, page.VpcEndpoints...)
	}

	return out, nil
}

func readEndpoints(ctx context.Context, api endpointAPI, scope Scope) ([]plan.ActualResource, error) {
	list, err := describeEndpoints(ctx, api, clusterFilters(scope))
	if err != nil {
		return nil, err
	}

	var out []plan.ActualResource

	for _, e := range list {
		if state := strings.ToLower(string(e.State)); state == "deleting" || state == "deleted" {
			continue
		}

		r := awskind.VPCEndpoint{
			VPC:         graph.UnmanagedRef[awskind.VPC](aws.ToString(e.VpcId)),
			Service:     aws.ToString(e.ServiceName),
			Type:        string(e.VpcEndpointType),
			RouteTables: refsTo[awskind.RouteTable](e.RouteTableIds),
			Subnets:     refsTo[awskind.Subnet](e.SubnetIds),
			PrivateDNS:  aws.ToBool(e.PrivateDnsEnabled),
			Tags:        FromEC2Tags(e.Tags),
		}

		for _, g := range e.Groups {
			r.SecurityGroups = append(
				r.SecurityGroups,
				graph.UnmanagedRef[awskind.SecurityGroup](aws.ToString(g.GroupId)),
			)
		}

		out = append(out, newActual(e.VpcEndpointId, r.Tags, r))
	}

	return out, nil
}
