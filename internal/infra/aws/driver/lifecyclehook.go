// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"
	"strings"

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

// registerLifecycleHooks registers the driver of lifecycle hooks. They are read with their groups.
func registerLifecycleHooks(c *Cloud, api lifecycleHookAPI) {
	put := func(ctx context.Context, t task[awskind.LifecycleHook]) (plan.StepResult, error) {
		group := t.want.Group.Literal()
		_, err := api.PutLifecycleHook(ctx, &autoscaling.PutLifecycleHookInput{
			AutoScalingGroupName: &group,
			LifecycleHookName:    &t.want.Name,
			LifecycleTransition:  &t.want.Transition,
			DefaultResult:        &t.want.DefaultResult,
			HeartbeatTimeout:     int32OrNil(t.want.HeartbeatTimeout),
		})
		err = transport.Wrap(err, "put lifecycle hook %s of auto scaling group %s", t.want.Name, group)

		return plan.StepResult{ID: lifecycleHookID(group, t.want.Name)}, err
	}

	registerDriver(c, driver[awskind.LifecycleHook]{
		create: put,
		update: put,
		remove: func(ctx context.Context, t task[awskind.LifecycleHook]) error {
			group := t.have.Group.Literal()
			_, err := api.DeleteLifecycleHook(
				ctx,
				&autoscaling.DeleteLifecycleHookInput{AutoScalingGroupName: &group, LifecycleHookName: &t.have.Name},
			)

			return transport.Wrap(err, "delete lifecycle hook %s of auto scaling group %s", t.have.Name, group)
		},
	})
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
