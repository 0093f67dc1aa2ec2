// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type scalingAPI interface {
	autoscaling.DescribeAutoScalingGroupsAPIClient
	autoscaling.DescribeScalingActivitiesAPIClient
	CreateAutoScalingGroup(
		context.Context,
		*autoscaling.CreateAutoScalingGroupInput,
		...func(*autoscaling.Options),
	) (*autoscaling.CreateAutoScalingGroupOutput, error)
	UpdateAutoScalingGroup(
		context.Context,
		*autoscaling.UpdateAutoScalingGroupInput,
		...func(*autoscaling.Options),
	) (*autoscaling.UpdateAutoScalingGroupOutput, error)
	DeleteAutoScalingGroup(
		context.Context,
		*autoscaling.DeleteAutoScalingGroupInput,
		...func(*autoscaling.Options),
	) (*autoscaling.DeleteAutoScalingGroupOutput, error)
	scalingAttachAPI
	groupOptionAPI
}

// groupOptionAPI has the calls for what a group may have besides its machines.
type groupOptionAPI interface {
	warmPoolAPI
	lifecycleHookAPI
	notificationAPI
}

type scalingAttachAPI interface {
	AttachLoadBalancerTargetGroups(
		context.Context,
		*autoscaling.AttachLoadBalancerTargetGroupsInput,
		...func(*autoscaling.Options),
	) (*autoscaling.AttachLoadBalancerTargetGroupsOutput, error)
	DetachLoadBalancerTargetGroups(
		context.Context,
		*autoscaling.DetachLoadBalancerTargetGroupsInput,
		...func(*autoscaling.Options),
	) (*autoscaling.DetachLoadBalancerTargetGroupsOutput, error)
	scalingTagAPI
}

// scalingTagAPI changes the tags of groups.
type scalingTagAPI interface {
	CreateOrUpdateTags(
		context.Context,
		*autoscaling.CreateOrUpdateTagsInput,
		...func(*autoscaling.Options),
	) (*autoscaling.CreateOrUpdateTagsOutput, error)
	DeleteTags(
		context.Context,
		*autoscaling.DeleteTagsInput,
		...func(*autoscaling.Options),
	) (*autoscaling.DeleteTagsOutput, error)
}

// scalingDriver is the driver of auto scaling groups.
type scalingDriver struct {
	api            scalingAPI
	hooks          *hookDriver
	instances      instanceAPI
	groupPoller    *transport.StatePoller[astypes.AutoScalingGroup]
	instancePoller *transport.StatePoller[[]string] // ids of instances that are not terminated yet
}

// registerAutoScalingGroups registers the driver of auto scaling groups.
func registerAutoScalingGroups(c *Cloud, api scalingAPI, instances instanceAPI, scope Scope) {
	s := &scalingDriver{api: api, instances: instances}
	s.groupPoller = &transport.StatePoller[astypes.AutoScalingGroup]{Describe: s.describeGroups}
	s.instancePoller = &transport.StatePoller[[]string]{Describe: s.listInstances}
	c.addReader(func(ctx context.Context) ([]plan.ActualResource, error) { return s.readGroups(ctx, scope, c.topic) })

	s.hooks = registerLifecycleHooks(c, api)
	registerDriver(c, driver[awskind.AutoScalingGroup]{
		create:    s.createGroup,
		update:    s.updateGroup,
		remove:    s.deleteGroup,
		waitReady: s.waitInService,
	})
}

func (s *scalingDriver) createGroup(
	ctx context.Context,
	t task[awskind.AutoScalingGroup],
) (plan.StepResult, error) {
	w := t.want
	hooks := s.hooks.initialHooks(w.Name)
	_, err := s.api.CreateAutoScalingGroup(ctx, &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName:   &w.Name,
		MinSize:                aws.Int32(int32(w.MinSize)),
		MaxSize:                aws.Int32(int32(w.MaxSize)),
		DesiredCapacity:        int32OrNil(w.DesiredCapacity),
		LaunchTemplate:         toTemplateSpec(w.Template),
		VPCZoneIdentifier:      aws.String(strings.Join(refIDs(w.Subnets), ",")),
		TargetGroupARNs:        refIDs(w.TargetGroups),
		HealthCheckType:        stringOrNil(w.HealthCheckType),
		HealthCheckGracePeriod: int32OrNil(w.HealthCheckGrace),
		Tags:                   append(toScalingTags(w.Name, w.Tags), hooksTag(w.Name, hooks)),
		MixedInstancesPolicy:   toMixedPolicy(w.MixedInstances),
		CapacityRebalance:      &w.CapacityRebalance,

		LifecycleHookSpecificationList: toHookSpecs(hooks),
	})
	if err != nil {
		return plan.StepResult{}, transport.Wrap(err, "create auto scaling group %s", w.Name)
	}

	s.hooks.hasCreated(w.Name)

	err = s.setWarmPool(ctx, w.Name, w.WarmPool, awskind.WarmPool{})
	if err == nil {
		err = syncNotifications(ctx, s.api, w.Name, w.Notifications, nil)
	}

	return plan.StepResult{ID: w.Name}, transport.MarkNotRetryable(err, w.Name)
}

func (s *scalingDriver) updateGroup(
	ctx context.Context,
	t task[awskind.AutoScalingGroup],
) (plan.StepResult, error) {
	w := t.want
	_, err := s.api.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
		AutoScalingGroupName:   &t.id,
		MinSize:                aws.Int32(int32(w.MinSize)),
		MaxSize:                aws.Int32(int32(w.MaxSize)),
		LaunchTemplate:         toTemplateSpec(w.Template),
		VPCZoneIdentifier:      aws.String(strings.Join(refIDs(w.Subnets), ",")),
		HealthCheckType:        stringOrNil(w.HealthCheckType),
		HealthCheckGracePeriod: int32OrNil(w.HealthCheckGrace),
		MixedInstancesPolicy:   toMixedPolicy(w.MixedInstances),
		CapacityRebalance:      &w.CapacityRebalance,
	})
	if err != nil {
		return plan.StepResult{}, transport.Wrap(err, "update auto scaling group %s", t.id)
	}

	if err := s.syncTargetGroups(ctx, t); err != nil {
		return plan.StepResult{}, err
	}

	if w.WarmPool != (awskind.WarmPool{}) {
		if err := s.hooks.putLaunchHooks(ctx, t.id); err != nil {
			return plan.StepResult{}, err
		}
	}

	if err := s.setWarmPool(ctx, t.id, w.WarmPool, t.have.WarmPool); err != nil {
		return plan.StepResult{}, err
	}

	if err := syncNotifications(ctx, s.api, t.id, w.Notifications, t.have.Notifications); err != nil {
		return plan.StepResult{}, err
	}

	return keepIdentity(t), s.retagGroup(ctx, t)
}

// syncTargetGroups attaches the target groups that a group lacks, and detaches those that it is not
// to have.
func (s *scalingDriver) syncTargetGroups(ctx context.Context, t task[awskind.AutoScalingGroup]) error {
	add, remove := diffLists(refIDs(t.want.TargetGroups), refIDs(t.have.TargetGroups))
	if len(add) > 0 {
		in := &autoscaling.AttachLoadBalancerTargetGroupsInput{AutoScalingGroupName: &t.id, TargetGroupARNs: add}
		if _, err := s.api.AttachLoadBalancerTargetGroups(ctx, in); err != nil {
			return transport.Wrap(err, "attach target groups to %s", t.id)
		}
	}

	if len(remove) > 0 {
		in := &autoscaling.DetachLoadBalancerTargetGroupsInput{AutoScalingGroupName: &t.id, TargetGroupARNs: remove}
		if _, err := s.api.DetachLoadBalancerTargetGroups(ctx, in); err != nil {
			return transport.Wrap(err, "detach target groups from %s", t.id)
		}
	}

	return nil
}

// retagGroup changes the tags of a group.
func (s *scalingDriver) retagGroup(ctx context.Context, t task[awskind.AutoScalingGroup]) error {
	set, remove := diffTags(t.want.Tags, t.have.Tags)
	if len(set) > 0 {
		in := &autoscaling.CreateOrUpdateTagsInput{Tags: toScalingTags(t.id, set)}
		if _, err := s.api.CreateOrUpdateTags(ctx, in); err != nil {
			return transport.Wrap(err, "tag %s", t.id)
		}
	}

	if len(remove) > 0 {
		removed := awskind.Tags{}
		for _, k := range remove {
			removed[k] = t.have.Tags[k]
		}

		in := &autoscaling.DeleteTagsInput{Tags: toScalingTags(t.id, removed)}
		if _, err := s.api.DeleteTags(ctx, in); err != nil {
			return transport.Wrap(err, "untag %s", t.id)
		}
	}

	return nil
}

// deleteGroup deletes the group and its instances, and waits for both: until then their subnets and
// security groups are in use.
func (s *scalingDriver) deleteGroup(ctx context.Context, t task[awskind.AutoScalingGroup]) error {
	_, err := s.api.DeleteAutoScalingGroup(
		ctx,
		&autoscaling.DeleteAutoScalingGroupInput{AutoScalingGroupName: &t.id, ForceDelete: aws.Bool(true)},
	)
	if err = transport.Wrap(err, "delete auto scaling group %s", t.id); err != nil && !isGroupNotFound(err) {
		return waitWhileInUse(err)
	}

	return runBoth(
		func() error {
			return s.groupPoller.WaitUntil(ctx, t.id, func(_ astypes.AutoScalingGroup, found bool) (bool, error) {
				return !found, nil
			})
		},
		func() error {
			return s.instancePoller.WaitUntil(ctx, t.id, func(ids []string, _ bool) (bool, error) {
				if len(ids) > 0 {
					t.reportWaiting("instances are being terminated: " + strings.Join(ids, ", "))
				}

				return len(ids) == 0, nil
			})
		},
	)
}

// isGroupNotFound reports whether err means that an auto scaling group does not exist. AWS has no
// code of its own for that.
func isGroupNotFound(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "not found")
}

// waitInService waits until the desired number of instances is in service. Whether Kubernetes runs
// on them is checked by validate.
func (s *scalingDriver) waitInService(
	ctx context.Context,
	t task[awskind.AutoScalingGroup],
	result plan.StepResult,
) error {
	const roundsPerReason = 5 // how often the group is described before AWS is asked for a reason
	rounds := 0

	return s.groupPoller.WaitUntil(ctx, result.ID, func(g astypes.AutoScalingGroup, found bool) (bool, error) {
		inService := countInService(g)
		want := int(aws.ToInt32(g.DesiredCapacity))
		if found && inService >= want {
			return true, nil
		}

		rounds++
		progress := fmt.Sprintf("%d of %d instances in service", inService, want)
		if rounds%roundsPerReason == 0 {
			reason, err := s.readLastFailure(ctx, result.ID)
			if err != nil {
				return false, err
			}

			progress += reason
		}

		t.reportWaiting(progress)

		return false, nil
	})
}

// countInService counts the instances in service, and those that only wait for their own agent.
func countInService(g astypes.AutoScalingGroup) int {
	counted := []astypes.LifecycleState{
		astypes.LifecycleStateInService,
		astypes.LifecycleStatePendingWait,
		astypes.LifecycleStatePendingProceed,
	}

	n := 0
	for _, i := range g.Instances {
		if slices.Contains(counted, i.LifecycleState) {
			n++
		}
	}

	return n
}

// readLastFailure returns the reason why auto scaling failed to launch an instance, in AWS's words
// and with a leading ": ". It is empty if the last scaling activity did not fail.
func (s *scalingDriver) readLastFailure(ctx context.Context, name string) (string, error) {
	out, err := s.api.DescribeScalingActivities(
		ctx,
		&autoscaling.DescribeScalingActivitiesInput{AutoScalingGroupName: &name, MaxRecords: aws.Int32(1)},
	)
	if err != nil {
		return "", transport.Wrap(err, "read the scaling activities of %s", name)
	}

	for _, a := range out.Activities {
		if a.StatusCode == astypes.ScalingActivityStatusCodeFailed ||
			a.StatusCode == astypes.ScalingActivityStatusCodeCancelled {
			return ": " + aws.ToString(a.StatusMessage), nil
		}
	}

	return "", nil
}

func (s *scalingDriver) listGroups(
	ctx context.Context,
	in *autoscaling.DescribeAutoScalingGroupsInput,
) ([]astypes.AutoScalingGroup, error) {
	var out []astypes.AutoScalingGroup
	const pageSize = 100 // the largest; the default is 50
	in.MaxRecords = aws.Int32(pageSize)
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(s.api, in)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list auto scaling groups")
		}

		out = append(out, page.AutoScalingGroups...)
	}

	return out, nil
}

// describeGroups returns the groups with names.
func (s *scalingDriver) describeGroups(
	ctx context.Context,
	names []string,
) (map[string]astypes.AutoScalingGroup, error) {
	list, err := s.listGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: names})
	out := map[string]astypes.AutoScalingGroup{}
	for _, g := range list {
		out[aws.ToString(g.AutoScalingGroupName)] = g
	}

	return out, err
}

// listInstances returns the ids of the instances of groups that are not terminated, by the name of
// their group.
func (s *scalingDriver) listInstances(ctx context.Context, names []string) (map[string][]string, error) {
	out := map[string][]string{}
	filters := slices.Concat(
		NewFilters("tag:"+ScalingGroupTag, names...),
		NewFilters("instance-state-name", "pending", "running", "shutting-down", "stopping", "stopped"),
	)
	pages := ec2.NewDescribeInstancesPaginator(s.instances, &ec2.DescribeInstancesInput{Filters: filters})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the instances of auto scaling groups")
		}

		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				name := FromEC2Tags(i.Tags)[ScalingGroupTag]
				out[name] = append(out[name], aws.ToString(i.InstanceId))
			}
		}
	}

	return out, nil
}

func (s *scalingDriver) readGroups(
	ctx context.Context,
	scope Scope,
	topic functionSearch,
) ([]plan.ActualResource, error) {
	list, err := s.listGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{Filters: []astypes.Filter{
		{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{scope.Cluster}},
	}})
	if err != nil {
		return nil, err
	}

	list = slices.DeleteFunc(list, func(g astypes.AutoScalingGroup) bool {
		return aws.ToString(g.Status) != "" // it is being deleted
	})

	notifications, err := readNotifications(ctx, s.api, topic, list)
	if err != nil {
		return nil, err
	}

	var out []plan.ActualResource

	for _, g := range list {
		r := fromGroup(g)
		r.Notifications = notifications[r.Name]
		out = append(out, newActual(&r.Name, r.Tags, r))
	}

	hooks, err := s.hooks.read(ctx, list)

	return append(out, hooks...), err
}

// fromGroup returns an auto scaling group that AWS lists.
func fromGroup(g astypes.AutoScalingGroup) awskind.AutoScalingGroup {
	r := awskind.AutoScalingGroup{
		Name:              aws.ToString(g.AutoScalingGroupName),
		MinSize:           int(aws.ToInt32(g.MinSize)),
		MaxSize:           int(aws.ToInt32(g.MaxSize)),
		DesiredCapacity:   int(aws.ToInt32(g.DesiredCapacity)),
		HealthCheckType:   aws.ToString(g.HealthCheckType),
		HealthCheckGrace:  int(aws.ToInt32(g.HealthCheckGracePeriod)),
		Tags:              awskind.Tags{},
		MixedInstances:    fromMixedPolicy(g.MixedInstancesPolicy),
		CapacityRebalance: aws.ToBool(g.CapacityRebalance),
		WarmPool:          fromWarmPool(g.WarmPoolConfiguration),
	}
	if lt := g.LaunchTemplate; lt != nil {
		r.Template = awskind.TemplateSpec{
			ID:      graph.UnmanagedRef[awskind.LaunchTemplate](aws.ToString(lt.LaunchTemplateId)),
			Version: graph.LiteralText(aws.ToString(lt.Version)),
		}
	}

	for id := range strings.SplitSeq(aws.ToString(g.VPCZoneIdentifier), ",") {
		r.Subnets = append(r.Subnets, graph.UnmanagedRef[awskind.Subnet](strings.TrimSpace(id)))
	}

	for _, arn := range g.TargetGroupARNs {
		r.TargetGroups = append(r.TargetGroups, graph.UnmanagedRef[awskind.TargetGroup](arn))
	}

	for _, tag := range g.Tags {
		if aws.ToBool(tag.PropagateAtLaunch) { // other tags differ from the desired ones: instances lack them
			r.Tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
		}
	}

	return r
}

func toScalingTags(group string, tags awskind.Tags) []astypes.Tag {
	var out []astypes.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, astypes.Tag{
			Key:               aws.String(k),
			Value:             aws.String(tags[k]),
			PropagateAtLaunch: aws.Bool(true),
			ResourceId:        aws.String(group),
			ResourceType:      aws.String("auto-scaling-group"),
		})
	}

	return out
}
