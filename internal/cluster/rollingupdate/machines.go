// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// autoscalingAPI are the calls to Auto Scaling.
type autoscalingAPI interface {
	autoscaling.DescribeAutoScalingGroupsAPIClient
	TerminateInstanceInAutoScalingGroup(
		context.Context,
		*autoscaling.TerminateInstanceInAutoScalingGroupInput,
		...func(*autoscaling.Options),
	) (*autoscaling.TerminateInstanceInAutoScalingGroupOutput, error)
}

// ec2API are the calls to EC2.
type ec2API interface {
	ec2.DescribeInstancesAPIClient
}

// awsMachines reads and terminates the machines of one cluster.
type awsMachines struct {
	cluster     string
	now         func() time.Time
	ownership   clusterstate.Ownership
	autoscaling autoscalingAPI
	ec2         ec2API
}

func newAWSMachines(
	cfg aws.Config,
	cluster string,
	ownership clusterstate.Ownership,
	now func() time.Time,
) awsMachines {
	return awsMachines{
		cluster:     cluster,
		now:         now,
		ownership:   ownership,
		autoscaling: autoscaling.NewFromConfig(cfg),
		ec2:         ec2.NewFromConfig(cfg),
	}
}

// List returns the groups of the cluster that run Kubernetes, and their machines. Bastions have no node and are left
// out.
func (a awsMachines) List(ctx context.Context) ([]rollout.Group, []rollout.Machine, error) {
	var groups []rollout.Group
	var machines []rollout.Machine
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(a.autoscaling, &autoscaling.DescribeAutoScalingGroupsInput{
		Filters: []types.Filter{{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{a.cluster}}},
	})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("list the auto scaling groups of cluster %s: %w", a.cluster, err)
		}

		for _, asg := range page.AutoScalingGroups {
			tags := tagsOf(asg)
			if tags[awskind.TagGroup] == "" || tags[awskind.TagRole] == "bastion" || !a.ownership.OwnsTags(tags) {
				continue
			}

			group := rollout.Group{
				Name:    tags[awskind.TagGroup],
				Slot:    tags[awskind.TagSlot],
				Size:    int(aws.ToInt32(asg.DesiredCapacity)),
				Version: templateVersion(asg),
			}
			groups = append(groups, group)
			machines = append(machines, groupMachines(group, asg)...)
		}
	}

	err := a.addLaunchTimes(ctx, machines)

	return groups, machines, err
}

// tagsOf returns the tags of an auto scaling group.
func tagsOf(asg types.AutoScalingGroup) map[string]string {
	tags := map[string]string{}
	for _, t := range asg.Tags {
		tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}

	return tags
}

// templateVersion returns the version of the launch template that new machines of a group get.
func templateVersion(asg types.AutoScalingGroup) string {
	if p := asg.MixedInstancesPolicy; p != nil && p.LaunchTemplate != nil &&
		p.LaunchTemplate.LaunchTemplateSpecification != nil {
		return aws.ToString(p.LaunchTemplate.LaunchTemplateSpecification.Version)
	}

	if asg.LaunchTemplate != nil {
		return aws.ToString(asg.LaunchTemplate.Version)
	}

	return ""
}

// groupMachines returns the machines of a group, without their launch times.
func groupMachines(group rollout.Group, asg types.AutoScalingGroup) []rollout.Machine {
	var out []rollout.Machine
	for _, i := range asg.Instances {
		m := rollout.Machine{
			ID:    aws.ToString(i.InstanceId),
			Group: group.Name,
			Slot:  group.Slot,
			Zone:  aws.ToString(i.AvailabilityZone),
			State: machineState(i.LifecycleState),
		}
		if i.LaunchTemplate != nil {
			m.Version = aws.ToString(i.LaunchTemplate.Version)
		}

		out = append(out, m)
	}

	return out
}

// machineState returns the state of a machine by its lifecycle state in Auto Scaling.
func machineState(s types.LifecycleState) rollout.MachineState {
	switch {
	case strings.HasPrefix(string(s), "Pending"):
		return rollout.StateStarting
	case strings.HasPrefix(string(s), "Terminat"), strings.HasPrefix(string(s), "Detach"):
		return rollout.StateTerminating
	}

	return rollout.StateRunning
}

// addLaunchTimes sets when EC2 launched each machine, and the state of those that EC2 has stopped already.
func (a awsMachines) addLaunchTimes(ctx context.Context, machines []rollout.Machine) error {
	launched := map[string]ec2types.Instance{}
	pages := ec2.NewDescribeInstancesPaginator(a.ec2, &ec2.DescribeInstancesInput{
		Filters: []ec2types.Filter{
			{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{a.cluster}},
		},
	})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("list the machines of cluster %s: %w", a.cluster, err)
		}

		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				launched[aws.ToString(i.InstanceId)] = i
			}
		}
	}

	for n := range machines {
		m := &machines[n]
		i, found := launched[m.ID]
		m.Launched = aws.ToTime(i.LaunchTime)
		switch {
		case !found:
			m.Launched = a.now() // EC2 does not show the new machine yet
			m.State = rollout.StateStarting
		case i.State != nil && i.State.Name != ec2types.InstanceStateNameRunning &&
			i.State.Name != ec2types.InstanceStateNamePending:
			m.State = rollout.StateTerminating
		}
	}

	return nil
}

// Terminate ends a machine. Its group keeps its size and launches the replacement.
func (a awsMachines) Terminate(ctx context.Context, id string) error {
	_, err := a.autoscaling.TerminateInstanceInAutoScalingGroup(
		ctx,
		&autoscaling.TerminateInstanceInAutoScalingGroupInput{
			InstanceId:                     &id,
			ShouldDecrementDesiredCapacity: aws.Bool(false),
		},
	)
	if err != nil {
		return fmt.Errorf("terminate machine %s: %w", id, err)
	}

	return nil
}
