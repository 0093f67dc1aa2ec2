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
	DescribeVpcEndpoints(
		context.Context,
		*ec2.DescribeVpcEndpointsInput,
		...func(*ec2.Options),
	) (*ec2.DescribeVpcEndpointsOutput, error)
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

// registerEndpoints drives VPC endpoints. Machines behind one can do nothing before it is available, so creation waits; its
// interfaces are in subnets and groups until it is gone, so deletion waits too.
func registerEndpoints(c *Cloud, api endpointAPI, scope Scope) {
	poller := &transport.StatePoller[ec2types.VpcEndpoint]{
		Describe: func(ctx context.Context, _ []string) (map[string]ec2types.VpcEndpoint, error) {
			list, err := describeEndpoints(
				ctx,
				api,
				clusterFilters(scope),
			) // asked by id, one that is gone would fail the others

			out := map[string]ec2types.VpcEndpoint{}
			for _, e := range list {
				out[aws.ToString(e.VpcEndpointId)] = e
			}

			return out, err
		},
	}

	c.readersByType[ec2types.ResourceTypeVpcEndpoint] = func(ctx context.Context) ([]plan.ActualResource, error) { return readEndpoints(ctx, api, scope) }
	registerDriver(c, driver[awskind.VPCEndpoint]{
		create: func(ctx context.Context, t task[awskind.VPCEndpoint]) (plan.StepResult, error) {
			id, err := createEndpoint(ctx, api, t.want)
			if err != nil {
				return plan.StepResult{}, err
			}

			err = poller.WaitUntil(ctx, id, func(e ec2types.VpcEndpoint, found bool) (bool, error) {
				t.reportWaiting(id + " is " + string(e.State))
				if state := strings.ToLower(string(e.State)); state == "failed" || state == "rejected" {
					return false, fmt.Errorf("%s is %s", id, state)
				}

				return found && strings.EqualFold(string(e.State), string(ec2types.StateAvailable)), nil
			})

			return plan.StepResult{ID: id}, transport.MarkNotRetryable(err, id)
		},
		update: func(ctx context.Context, t task[awskind.VPCEndpoint]) (plan.StepResult, error) {
			if err := modifyEndpoint(ctx, api, t); err != nil {
				return plan.StepResult{}, err
			}

			return keepIdentity(t), retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: func(ctx context.Context, t task[awskind.VPCEndpoint]) error {
			out, err := api.DeleteVpcEndpoints(
				ctx,
				&ec2.DeleteVpcEndpointsInput{VpcEndpointIds: []string{t.id}},
			)
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

			return poller.WaitUntil(ctx, t.id, func(e ec2types.VpcEndpoint, found bool) (bool, error) {
				t.reportWaiting(t.id + " is " + string(e.State))
				return !found || strings.EqualFold(string(e.State), string(ec2types.StateDeleted)), nil
			})
		},
	})
}

func createEndpoint(ctx context.Context, api endpointAPI, want awskind.VPCEndpoint) (string, error) {
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
		return "", transport.Wrap(err, "create endpoint of %s", want.Service)
	}

	return aws.ToString(out.VpcEndpoint.VpcEndpointId), nil
}

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

	changes := len(
		in.AddRouteTableIds,
	) + len(
		in.RemoveRouteTableIds,
	) + len(
		in.AddSubnetIds,
	) + len(
		in.RemoveSubnetIds,
	) +
		len(
			in.AddSecurityGroupIds,
		) + len(
		in.RemoveSecurityGroupIds,
	)
	if t.want.PrivateDNS != t.have.PrivateDNS {
		in.PrivateDnsEnabled = &t.want.PrivateDNS
		changes++
	}

	if changes == 0 {
		return nil
	}

	_, err := api.ModifyVpcEndpoint(ctx, in)

	return transport.Wrap(err, "change %s", t.id)
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

		out = append(
			out,
			plan.ActualResource{
				Addr:     addressFromTags(r.Tags),
				ID:       aws.ToString(e.VpcEndpointId),
				Resource: r,
			},
		)
	}

	return out, nil
}
