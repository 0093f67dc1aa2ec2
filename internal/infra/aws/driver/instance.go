// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

type instanceAPI interface {
	ec2.DescribeInstancesAPIClient
}

// ScalingGroupTag is the tag that auto scaling sets on its instances, with the name of their group.
const ScalingGroupTag = "aws:autoscaling:groupName"

// Instance is an instance outside auto scaling groups, such as one that Karpenter launched. Slipway
// creates none and only deletes them.
type Instance struct {
	// Subnet is the subnet of the first network interface.
	Subnet graph.Ref[awskind.Subnet] `aws:"SubnetId"`
	// SecurityGroups are those of the first network interface.
	SecurityGroups []graph.Ref[awskind.SecurityGroup] `aws:"SecurityGroupIds,set"`
	// Tags are all tags of the instance.
	Tags awskind.Tags `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (Instance) Kind() graph.Kind {
	return graph.Kind{Name: "instance", ImplicitDependencies: []string{"gateway-attachment"}}
}

type terminateAPI interface {
	instanceAPI
	TerminateInstances(
		context.Context,
		*ec2.TerminateInstancesInput,
		...func(*ec2.Options),
	) (*ec2.TerminateInstancesOutput, error)
}

// registerInstances registers the driver of instances outside auto scaling groups. It waits for
// their termination.
func registerInstances(c *Cloud, api terminateAPI) {
	poller := &transport.StatePoller[ec2types.InstanceStateName]{
		Describe: func(ctx context.Context, ids []string) (map[string]ec2types.InstanceStateName, error) {
			return instanceStates(ctx, api, ids)
		},
	}

	registerDriver(c, driver[Instance]{remove: func(ctx context.Context, t task[Instance]) error {
		in := &ec2.TerminateInstancesInput{InstanceIds: []string{t.id}}
		if _, err := api.TerminateInstances(ctx, in); err != nil {
			return transport.Wrap(err, "terminate %s", t.id)
		}

		return poller.WaitUntil(ctx, t.id, func(s ec2types.InstanceStateName, found bool) (bool, error) {
			t.reportWaiting(t.id + " is " + string(s))
			return !found || s == ec2types.InstanceStateNameTerminated, nil
		})
	}})
}

// instanceStates returns the states of the instances with ids.
func instanceStates(
	ctx context.Context,
	api instanceAPI,
	ids []string,
) (map[string]ec2types.InstanceStateName, error) {
	out := map[string]ec2types.InstanceStateName{}
	pages := ec2.NewDescribeInstancesPaginator(
		api,
		&ec2.DescribeInstancesInput{Filters: NewFilters("instance-id", ids...)},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "read the states of instances")
		}

		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				out[aws.ToString(i.InstanceId)] = i.State.Name
			}
		}
	}

	return out, nil
}
