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

// ScalingGroupTag is what auto scaling itself puts on its machines.
const ScalingGroupTag = "aws:autoscaling:groupName"

// Instance is a machine of no auto scaling group, such as one that Karpenter launched. We make none: it is only removed.
type Instance struct {
	Subnet         graph.Ref[awskind.Subnet]          `aws:"SubnetId"`
	SecurityGroups []graph.Ref[awskind.SecurityGroup] `aws:"SecurityGroupIds,set"`
	Tags           awskind.Tags                       `aws:"Tags,tags"`
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

// registerInstances deletes instances of no auto scaling group.
func registerInstances(c *Cloud, api terminateAPI) {
	poller := &transport.StatePoller[ec2types.InstanceStateName]{
		Describe: func(ctx context.Context, ids []string) (map[string]ec2types.InstanceStateName, error) {
			return instanceStates(ctx, api, ids)
		},
	}

	registerDriver(c, driver[Instance]{remove: func(ctx context.Context, t task[Instance]) error {
		if _, err := api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{t.id}}); err != nil {
			return transport.Wrap(err, "terminate %s", t.id)
		}

		return poller.WaitUntil(ctx, t.id, func(s ec2types.InstanceStateName, found bool) (bool, error) {
			t.reportWaiting("it is " + string(s))
			return !found || s == ec2types.InstanceStateNameTerminated, nil
		})
	}})
}

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
			return nil, transport.Wrap(err, "look at machines")
		}

		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				out[aws.ToString(i.InstanceId)] = i.State.Name
			}
		}
	}

	return out, nil
}
