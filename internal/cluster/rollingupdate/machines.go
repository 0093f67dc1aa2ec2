// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// detachedTag marks a machine that was detached from its Auto Scaling group during an update. Its value is the time. It
// is set before the machine is detached, and has a meaning only for a machine that is in no group.
const detachedTag = "slipway.dev/detached"

// autoscalingAPI are the calls to Auto Scaling.
type autoscalingAPI interface {
	autoscaling.DescribeAutoScalingGroupsAPIClient
	TerminateInstanceInAutoScalingGroup(
		context.Context,
		*autoscaling.TerminateInstanceInAutoScalingGroupInput,
		...func(*autoscaling.Options),
	) (*autoscaling.TerminateInstanceInAutoScalingGroupOutput, error)
	DetachInstances(
		context.Context,
		*autoscaling.DetachInstancesInput,
		...func(*autoscaling.Options),
	) (*autoscaling.DetachInstancesOutput, error)
	DescribeScalingActivities(
		context.Context,
		*autoscaling.DescribeScalingActivitiesInput,
		...func(*autoscaling.Options),
	) (*autoscaling.DescribeScalingActivitiesOutput, error)
	CompleteLifecycleAction(
		context.Context,
		*autoscaling.CompleteLifecycleActionInput,
		...func(*autoscaling.Options),
	) (*autoscaling.CompleteLifecycleActionOutput, error)
	UpdateAutoScalingGroup(
		context.Context,
		*autoscaling.UpdateAutoScalingGroupInput,
		...func(*autoscaling.Options),
	) (*autoscaling.UpdateAutoScalingGroupOutput, error)
}

// ec2API are the calls to EC2.
type ec2API interface {
	ec2.DescribeInstancesAPIClient
	CreateTags(
		context.Context,
		*ec2.CreateTagsInput,
		...func(*ec2.Options),
	) (*ec2.CreateTagsOutput, error)
	GetConsoleOutput(
		context.Context,
		*ec2.GetConsoleOutputInput,
		...func(*ec2.Options),
	) (*ec2.GetConsoleOutputOutput, error)
	TerminateInstances(
		context.Context,
		*ec2.TerminateInstancesInput,
		...func(*ec2.Options),
	) (*ec2.TerminateInstancesOutput, error)
	templateAPI
}

// awsMachines reads and changes the machines of one cluster.
type awsMachines struct {
	cluster     string
	now         func() time.Time
	ownership   clusterstate.Ownership
	autoscaling autoscalingAPI
	ec2         ec2API
	templates   *templateReader

	// belongsToStack is set if a CloudFormation stack changes the versions of the groups.
	belongsToStack bool

	mu sync.Mutex
	// scaling are the Auto Scaling groups as they were listed last, by group and slot.
	scaling map[string]types.AutoScalingGroup
	// avoided are the launch template versions that groups do not move to, by group and slot.
	avoided map[string]string
}

func newAWSMachines(
	cfg aws.Config,
	cluster string,
	ownership clusterstate.Ownership,
	now func() time.Time,
) *awsMachines {
	api := ec2.NewFromConfig(cfg)

	return &awsMachines{
		cluster:     cluster,
		now:         now,
		ownership:   ownership,
		autoscaling: autoscaling.NewFromConfig(cfg),
		ec2:         api,
		templates:   newTemplateReader(api),
	}
}

// groupKey identifies an Auto Scaling group by its instance group and slot.
func groupKey(group, slot string) string { return group + "/" + slot }

// List returns the groups of the cluster that run Kubernetes, and their machines. Bastions have no node and are left
// out.
func (a *awsMachines) List(ctx context.Context) ([]rollout.Group, []rollout.Machine, error) {
	var groups []rollout.Group
	var machines []rollout.Machine
	newest, err := a.newestVersions(ctx)
	if err != nil {
		return nil, nil, err
	}

	scaling := map[string]types.AutoScalingGroup{}
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
				Name: tags[awskind.TagGroup],
				Slot: tags[awskind.TagSlot],
				Size: int(aws.ToInt32(asg.DesiredCapacity)),
			}
			a.setVersions(&group, templateVersion(asg), newest[templateID(asg)])
			scaling[groupKey(group.Name, group.Slot)] = asg
			members := groupMachines(group, asg)
			if err := a.templates.addDocuments(ctx, templateID(asg), &group, members); err != nil {
				return nil, nil, err
			}

			groups = append(groups, group)
			machines = append(machines, members...)
		}
	}

	instances, err := a.listInstances(ctx)
	if err != nil {
		return nil, nil, err
	}

	a.addInstances(machines, instances)
	machines = append(machines, a.detachedMachines(machines, instances)...)
	a.mu.Lock()
	a.scaling = scaling
	a.mu.Unlock()
	if err := a.addCapacity(ctx, groups, machines); err != nil {
		return nil, nil, err
	}

	return groups, machines, nil
}

// tagsOf returns the tags of an auto scaling group.
func tagsOf(asg types.AutoScalingGroup) map[string]string {
	tags := map[string]string{}
	for _, t := range asg.Tags {
		tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}

	return tags
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
	case strings.HasPrefix(string(s), "Detach"):
		return stateDetaching
	case strings.HasPrefix(string(s), "Terminat"):
		return rollout.StateTerminating
	}

	return rollout.StateRunning
}

// listInstances returns the cluster's instances by id.
func (a *awsMachines) listInstances(ctx context.Context) (map[string]ec2types.Instance, error) {
	out := map[string]ec2types.Instance{}
	pages := ec2.NewDescribeInstancesPaginator(a.ec2, &ec2.DescribeInstancesInput{
		Filters: []ec2types.Filter{
			{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{a.cluster}},
		},
	})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the machines of cluster %s: %w", a.cluster, err)
		}

		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				out[aws.ToString(i.InstanceId)] = i
			}
		}
	}

	return out, nil
}

// addInstances sets when EC2 launched each machine, and the state of those that EC2 has stopped already.
func (a *awsMachines) addInstances(machines []rollout.Machine, instances map[string]ec2types.Instance) {
	for n := range machines {
		m := &machines[n]
		i, found := instances[m.ID]
		m.Launched = aws.ToTime(i.LaunchTime)
		switch {
		case !found:
			m.Launched = a.now() // EC2 does not show the new machine yet
			m.State = rollout.StateStarting
		case !isAlive(i):
			m.State = rollout.StateTerminating
		default:
			a.addDetaching(m, i)
		}
	}
}

// isAlive reports whether an instance runs or starts.
func isAlive(i ec2types.Instance) bool {
	return i.State == nil || i.State.Name == ec2types.InstanceStateNameRunning ||
		i.State.Name == ec2types.InstanceStateNamePending
}

// templateVersionTag is the tag in which EC2 keeps the version of the launch template of an instance. A group does not
// tell the version of a machine that it was detached from.
const templateVersionTag = "aws:ec2launchtemplate:version"

// detachedMachines returns the machines that an update has detached from their groups and not terminated yet, sorted
// by id.
func (a *awsMachines) detachedMachines(
	inGroups []rollout.Machine,
	instances map[string]ec2types.Instance,
) []rollout.Machine {
	var out []rollout.Machine
	for _, id := range slices.Sorted(maps.Keys(instances)) {
		i := instances[id]
		tags := driver.FromEC2Tags(i.Tags)
		isMember := slices.ContainsFunc(inGroups, func(m rollout.Machine) bool { return m.ID == id })
		if tags[detachedTag] == "" || isMember || !isAlive(i) || !a.ownership.OwnsTags(tags) {
			continue
		}

		m := rollout.Machine{
			ID:            id,
			Group:         tags[awskind.TagGroup],
			Slot:          tags[awskind.TagSlot],
			State:         rollout.StateRunning,
			Version:       tags[templateVersionTag],
			Launched:      aws.ToTime(i.LaunchTime),
			Detached:      true,
			DetachedSince: parseTagTime(tags[detachedTag]),
		}
		if i.Placement != nil {
			m.Zone = aws.ToString(i.Placement.AvailabilityZone)
		}

		out = append(out, m)
	}

	return out
}

// Terminate ends a machine. Its group keeps its size and launches the replacement; a detached machine has none.
func (a *awsMachines) Terminate(ctx context.Context, m rollout.Machine) error {
	var err error
	if m.Detached {
		_, err = a.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{m.ID}})
	} else {
		_, err = a.autoscaling.TerminateInstanceInAutoScalingGroup(
			ctx,
			&autoscaling.TerminateInstanceInAutoScalingGroupInput{
				InstanceId:                     &m.ID,
				ShouldDecrementDesiredCapacity: aws.Bool(false),
			},
		)
		if err == nil {
			a.completeHook(ctx, m)
		}
	}

	if isGone(err) {
		return fmt.Errorf("terminate machine %s: %w", m.ID, errGone)
	}

	if err != nil {
		return fmt.Errorf("terminate machine %s: %w", m.ID, err)
	}

	return nil
}

// completeHook ends the wait of Auto Scaling for a drain, because the machine is drained already: it may be one whose
// agent does not work any more. Auto Scaling may not wait yet; then the machine's agent or the hook's timeout ends it.
func (a *awsMachines) completeHook(ctx context.Context, m rollout.Machine) {
	const tries = 3
	if m.Slot != "" {
		return // the control plane has no hooks
	}

	group := a.scalingGroup(m.Group, m.Slot)
	for range tries {
		_, err := a.autoscaling.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
			AutoScalingGroupName:  group.AutoScalingGroupName,
			LifecycleHookName:     aws.String(node.TerminationHook),
			LifecycleActionResult: aws.String("CONTINUE"),
			InstanceId:            &m.ID,
		})
		if err == nil || ctx.Err() != nil {
			return
		}

		select {
		case <-ctx.Done():
		case <-time.After(hookRetryInterval):
		}
	}
}

// hookRetryInterval is the time between two tries to complete a hook.
const hookRetryInterval = 300 * time.Millisecond

// Detach removes a machine from its Auto Scaling group, which launches a new one in its place. The machine is marked
// first, so that another run finds it.
func (a *awsMachines) Detach(ctx context.Context, m rollout.Machine) error {
	_, err := a.ec2.CreateTags(ctx, &ec2.CreateTagsInput{
		Resources: []string{m.ID},
		Tags:      []ec2types.Tag{{Key: aws.String(detachedTag), Value: aws.String(a.now().UTC().Format(time.RFC3339))}},
	})
	if isGone(err) {
		return fmt.Errorf("mark machine %s as detached: %w", m.ID, errGone)
	}

	if err != nil {
		return fmt.Errorf("mark machine %s as detached: %w", m.ID, err)
	}

	group := a.scalingGroup(m.Group, m.Slot)
	_, err = a.autoscaling.DetachInstances(ctx, &autoscaling.DetachInstancesInput{
		AutoScalingGroupName:           group.AutoScalingGroupName,
		InstanceIds:                    []string{m.ID},
		ShouldDecrementDesiredCapacity: aws.Bool(false),
	})
	if isGone(err) {
		return fmt.Errorf("detach machine %s: %w", m.ID, errGone)
	}

	if err != nil {
		return fmt.Errorf("detach machine %s from auto scaling group %s: %w",
			m.ID, aws.ToString(group.AutoScalingGroupName), err)
	}

	return nil
}

// scalingGroup returns an Auto Scaling group as it was listed last.
func (a *awsMachines) scalingGroup(group, slot string) types.AutoScalingGroup {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.scaling[groupKey(group, slot)]
}

// BootStage returns the last stage that a machine reported on its console, such as "verify: containerd: 404"; empty if
// it reported none or if the console cannot be read.
func (a *awsMachines) BootStage(ctx context.Context, id string) string {
	out, err := a.ec2.GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &id, Latest: aws.Bool(true)})
	if err != nil { // only instances on Nitro have the latest output
		out, err = a.ec2.GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &id})
	}

	if err != nil {
		return ""
	}

	text, err := base64.StdEncoding.DecodeString(aws.ToString(out.Output))
	if err != nil {
		return ""
	}

	stages := health.ParseConsole(text)
	if len(stages) == 0 {
		return ""
	}

	last := stages[len(stages)-1]
	for _, s := range stages {
		if s.Error != "" {
			last = s // a later stage of another branch may have succeeded
		}
	}

	if last.Error == "" {
		return "stage " + last.Stage
	}

	return "stage " + last.Stage + ": " + last.Error
}
