// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

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

// NetworkInterface is an interface that belongs to nothing any more. We make none: it is only removed.
type NetworkInterface struct {
	Subnet         graph.Ref[awskind.Subnet]          `aws:"SubnetId"`
	SecurityGroups []graph.Ref[awskind.SecurityGroup] `aws:"GroupSet,set"`
	Tags           awskind.Tags                       `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (NetworkInterface) Kind() graph.Kind { return graph.Kind{Name: "network-interface"} }

// Snapshot is a snapshot of a claim's volume. We make none: it is only removed.
type Snapshot struct {
	KMSKey graph.Text   `aws:"KmsKeyId"`
	Tags   awskind.Tags `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (Snapshot) Kind() graph.Kind { return graph.Kind{Name: "snapshot"} }

type leftoverAPI interface {
	instanceAPI
	TerminateInstances(
		context.Context,
		*ec2.TerminateInstancesInput,
		...func(*ec2.Options),
	) (*ec2.TerminateInstancesOutput, error)
	DeleteNetworkInterface(
		context.Context,
		*ec2.DeleteNetworkInterfaceInput,
		...func(*ec2.Options),
	) (*ec2.DeleteNetworkInterfaceOutput, error)
	DeleteSnapshot(
		context.Context,
		*ec2.DeleteSnapshotInput,
		...func(*ec2.Options),
	) (*ec2.DeleteSnapshotOutput, error)
}

// registerLeftovers drives the kinds that only programs in a cluster make.
func registerLeftovers(c *Cloud, api leftoverAPI) {
	looks := &statePoller[ec2types.InstanceStateName]{
		describe: func(ctx context.Context, ids []string) (map[string]ec2types.InstanceStateName, error) {
			return instanceStates(ctx, api, ids)
		},
	}

	registerDriver(c, driver[Instance]{remove: func(ctx context.Context, t task[Instance]) error {
		if _, err := api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{t.id}}); err != nil {
			return wrap(err, "terminate %s", t.id)
		}

		return looks.waitUntil(ctx, t.id, func(s ec2types.InstanceStateName, found bool) (bool, error) {
			t.reportWaiting("it is " + string(s))
			return !found || s == ec2types.InstanceStateNameTerminated, nil
		})
	}})

	registerDriver(
		c,
		driver[NetworkInterface]{remove: func(ctx context.Context, t task[NetworkInterface]) error {
			_, err := api.DeleteNetworkInterface(
				ctx,
				&ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &t.id},
			)

			return wrap(err, "delete %s", t.id)
		}},
	)

	registerDriver(c, driver[Snapshot]{remove: func(ctx context.Context, t task[Snapshot]) error {
		_, err := api.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: &t.id})
		if err = wrap(err, "delete %s", t.id); err != nil &&
			strings.Contains(err.Error(), "InvalidSnapshot.InUse") {
			return Error{
				Op:    "delete " + t.id + ": an image was made of it: deregister that first",
				class: plan.InUse,
				err:   err,
			}
		}

		return err
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
		&ec2.DescribeInstancesInput{Filters: newFilters("instance-id", ids...)},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, wrap(err, "look at machines")
		}

		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				out[aws.ToString(i.InstanceId)] = i.State.Name
			}
		}
	}

	return out, nil
}
