// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// ownHookPrefix is the beginning of the names of Slipway's lifecycle hooks. Other tools may add hooks of their own to a
// group, which are left alone.
const ownHookPrefix = "slipway-"

type lifecycleHookAPI interface {
	DescribeLifecycleHooks(
		context.Context,
		*autoscaling.DescribeLifecycleHooksInput,
		...func(*autoscaling.Options),
	) (*autoscaling.DescribeLifecycleHooksOutput, error)
	PutLifecycleHook(
		context.Context,
		*autoscaling.PutLifecycleHookInput,
		...func(*autoscaling.Options),
	) (*autoscaling.PutLifecycleHookOutput, error)
	DeleteLifecycleHook(
		context.Context,
		*autoscaling.DeleteLifecycleHookInput,
		...func(*autoscaling.Options),
	) (*autoscaling.DeleteLifecycleHookOutput, error)
}

// hookDriver is the driver of lifecycle hooks. AWS lists them with a call for each group, so Slipway also records them in
// a tag of their group. The hooks of a group that is created are part of the call that creates it.
type hookDriver struct {
	api hookAPI

	mu sync.Mutex
	// known are the hooks of a group by the name of the group, as they were read or written last.
	known map[string][]awskind.LifecycleHook
	// expected are the hooks that the current plan creates together with their group.
	expected map[string][]awskind.LifecycleHook
	// launching are the launch hooks that the current plan creates or changes in groups with a warm
	// pool that exist.
	launching map[string]awskind.LifecycleHook
}

// hookAPI reads, changes and records lifecycle hooks.
type hookAPI interface {
	lifecycleHookAPI
	scalingTagAPI
}

// registerLifecycleHooks registers the driver of lifecycle hooks. They are read with their groups.
func registerLifecycleHooks(c *Cloud, api hookAPI) *hookDriver {
	h := &hookDriver{api: api, known: map[string][]awskind.LifecycleHook{}}
	c.planHooks = append(c.planHooks, h.expectPlan)
	registerDriver(c, driver[awskind.LifecycleHook]{
		create: h.put,
		update: h.put,
		remove: h.remove,
	})

	return h
}

// expectPlan finds the hooks that the plan creates together with their group.
func (h *hookDriver) expectPlan(p plan.Plan) {
	groups := map[graph.Addr]string{}
	changed := map[graph.Addr]string{}
	for _, s := range p.Steps {
		g, ok := s.Desired().(awskind.AutoScalingGroup)
		switch {
		case !ok:
		case s.Action == plan.Create:
			groups[s.Addr] = g.Name
		case g.WarmPool != (awskind.WarmPool{}):
			changed[s.Addr] = g.Name
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	h.expected = map[string][]awskind.LifecycleHook{}
	h.launching = map[string]awskind.LifecycleHook{}

	for _, s := range p.Steps {
		hook, ok := s.Desired().(awskind.LifecycleHook)
		if group := groups[hook.Group.Addr()]; ok && group != "" {
			hook.Group = graph.UnmanagedRef[awskind.AutoScalingGroup](group)
			h.expected[group] = append(h.expected[group], hook)
		}

		if group := changed[hook.Group.Addr()]; ok && group != "" && hook.Transition == awskind.Launching {
			hook.Group = graph.UnmanagedRef[awskind.AutoScalingGroup](group)
			h.launching[group] = hook
		}
	}
}

// putLaunchHooks creates the launch hook of an existing group before it gets a warm pool: Auto
// Scaling would stop the first machines of the pool while they boot.
func (h *hookDriver) putLaunchHooks(ctx context.Context, group string) error {
	h.mu.Lock()
	hook, ok := h.launching[group]
	h.mu.Unlock()
	if !ok {
		return nil
	}

	_, err := h.put(ctx, task[awskind.LifecycleHook]{want: hook})

	return err
}

// initialHooks returns the hooks that a group is created with.
func (h *hookDriver) initialHooks(group string) []awskind.LifecycleHook {
	h.mu.Lock()
	defer h.mu.Unlock()

	return h.expected[group]
}

// hasCreated notes that a group was created with its initial hooks.
func (h *hookDriver) hasCreated(group string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known[group] = slices.Clone(h.expected[group])
}

// put creates or changes a hook. The hook of a group that was just created exists already.
func (h *hookDriver) put(ctx context.Context, t task[awskind.LifecycleHook]) (plan.StepResult, error) {
	group := t.want.Group.Literal()
	result := plan.StepResult{ID: lifecycleHookID(group, t.want.Name)}
	if h.replaceKnown(group, t.want.Name, &t.want) {
		return result, nil
	}

	_, err := h.api.PutLifecycleHook(ctx, &autoscaling.PutLifecycleHookInput{
		AutoScalingGroupName: &group,
		LifecycleHookName:    &t.want.Name,
		LifecycleTransition:  &t.want.Transition,
		DefaultResult:        &t.want.DefaultResult,
		HeartbeatTimeout:     int32OrNil(t.want.HeartbeatTimeout),
	})
	if err != nil {
		h.replaceKnown(group, t.want.Name, nil) // or else another try would do nothing
		return result, transport.Wrap(err, "put lifecycle hook %s of auto scaling group %s", t.want.Name, group)
	}

	return result, h.recordHooks(ctx, group)
}

func (h *hookDriver) remove(ctx context.Context, t task[awskind.LifecycleHook]) error {
	group := t.have.Group.Literal()
	h.replaceKnown(group, t.have.Name, nil)
	_, err := h.api.DeleteLifecycleHook(
		ctx,
		&autoscaling.DeleteLifecycleHookInput{AutoScalingGroupName: &group, LifecycleHookName: &t.have.Name},
	)
	if err != nil {
		return transport.Wrap(err, "delete lifecycle hook %s of auto scaling group %s", t.have.Name, group)
	}

	return h.recordHooks(ctx, group)
}

// replaceKnown replaces the hook of a group with a name by next, nil for none. It reports whether next was known.
func (h *hookDriver) replaceKnown(group, name string, next *awskind.LifecycleHook) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if next != nil && slices.Contains(h.known[group], *next) {
		return true
	}

	h.known[group] = slices.DeleteFunc(h.known[group], func(k awskind.LifecycleHook) bool { return k.Name == name })
	if next != nil {
		h.known[group] = append(h.known[group], *next)
	}

	return false
}

// recordHooks records the hooks of a group in its tag.
func (h *hookDriver) recordHooks(ctx context.Context, group string) error {
	h.mu.Lock()
	tag := hooksTag(group, h.known[group])
	h.mu.Unlock()

	_, err := h.api.CreateOrUpdateTags(ctx, &autoscaling.CreateOrUpdateTagsInput{Tags: []astypes.Tag{tag}})

	return transport.Wrap(err, "record the lifecycle hooks of auto scaling group %s in a tag", group)
}

// read returns Slipway's hooks of groups: those that a group's tag records, if ctx allows that, else those that AWS
// lists. It returns none for a deletion, which deletes them with their group.
func (h *hookDriver) read(ctx context.Context, groups []astypes.AutoScalingGroup) ([]plan.ActualResource, error) {
	if omitsDetails(ctx) {
		return nil, nil
	}

	var out []plan.ActualResource
	var unrecorded []string

	for _, g := range groups {
		name := aws.ToString(g.AutoScalingGroupName)
		hooks, recorded := recordedHooks(g)
		if !recorded || !trustsRecordedHooks(ctx) {
			unrecorded = append(unrecorded, name)
			continue
		}

		for _, hook := range hooks {
			out = append(out, plan.ActualResource{ID: lifecycleHookID(name, hook.Name), Resource: hook})
		}
	}

	listed, err := readLifecycleHooks(ctx, h.api, unrecorded)
	out = append(out, listed...)
	h.setKnown(out)

	return out, err
}

// setKnown keeps the hooks that were read.
func (h *hookDriver) setKnown(found []plan.ActualResource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.known)

	for _, a := range found {
		if hook, ok := a.Resource.(awskind.LifecycleHook); ok {
			group := hook.Group.Literal()
			h.known[group] = append(h.known[group], hook)
		}
	}
}

// hookReaders limits how many groups are asked for their hooks at the same time: AWS has no call for several groups.
const hookReaders = 8

// readLifecycleHooks returns Slipway's hooks of groups.
func readLifecycleHooks(
	ctx context.Context,
	api lifecycleHookAPI,
	groups []string,
) ([]plan.ActualResource, error) {
	found := make([][]plan.ActualResource, len(groups))
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(hookReaders)
	for n, group := range groups {
		readers.Go(func() error {
			out, err := api.DescribeLifecycleHooks(
				ctx,
				&autoscaling.DescribeLifecycleHooksInput{AutoScalingGroupName: &group},
			)
			if isGroupNotFound(err) { // deleted in the meantime
				return nil
			}

			if err != nil {
				return transport.Wrap(err, "list the lifecycle hooks of auto scaling group %s", group)
			}

			found[n] = fromLifecycleHooks(group, out.LifecycleHooks)

			return nil
		})
	}

	err := readers.Wait()

	return slices.Concat(found...), err
}

// fromLifecycleHooks returns those of a group's hooks that are Slipway's.
func fromLifecycleHooks(group string, hooks []astypes.LifecycleHook) []plan.ActualResource {
	var out []plan.ActualResource
	for _, h := range hooks {
		name := aws.ToString(h.LifecycleHookName)
		if !strings.HasPrefix(name, ownHookPrefix) {
			continue
		}

		out = append(out, plan.ActualResource{ID: lifecycleHookID(group, name), Resource: awskind.LifecycleHook{
			Group:            graph.UnmanagedRef[awskind.AutoScalingGroup](group),
			Name:             name,
			Transition:       aws.ToString(h.LifecycleTransition),
			DefaultResult:    aws.ToString(h.DefaultResult),
			HeartbeatTimeout: int(aws.ToInt32(h.HeartbeatTimeout)),
		}})
	}

	return out
}

// lifecycleHookID returns the id of a lifecycle hook.
func lifecycleHookID(group, name string) string { return group + ":" + name }
