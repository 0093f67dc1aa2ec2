// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// ScalingAPI lists the operations of Auto Scaling that the agent uses. A worker may only complete
// and prolong the lifecycle hooks of its own group.
type ScalingAPI interface {
	CompleteLifecycleAction(
		context.Context,
		*autoscaling.CompleteLifecycleActionInput,
		...func(*autoscaling.Options),
	) (*autoscaling.CompleteLifecycleActionOutput, error)
	RecordLifecycleActionHeartbeat(
		context.Context,
		*autoscaling.RecordLifecycleActionHeartbeatInput,
		...func(*autoscaling.Options),
	) (*autoscaling.RecordLifecycleActionHeartbeatOutput, error)
}

// lifecycleHook is a lifecycle hook of an instance's Auto Scaling group.
type lifecycleHook struct {
	api      ScalingAPI
	name     string
	group    string // name of the Auto Scaling group
	instance string
}

// newLifecycleHook returns the hook with a name for this machine.
func newLifecycleHook(a *Agent, name string) lifecycleHook {
	group := node.ScalingGroupName(a.Boot.Cluster, a.Boot.Group, a.Boot.Slot)

	return lifecycleHook{api: a.Scaling, name: name, group: group, instance: a.instance.ID}
}

// complete lets Auto Scaling continue with the instance. It succeeds if nothing waits for the
// instance any more.
func (h lifecycleHook) complete(ctx context.Context) error {
	_, err := h.completeWaiting(ctx)

	return err
}

// completeWaiting is complete, and reports whether Auto Scaling was waiting.
func (h lifecycleHook) completeWaiting(ctx context.Context) (bool, error) {
	_, err := h.api.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName:  &h.group,
		LifecycleHookName:     &h.name,
		LifecycleActionResult: aws.String("CONTINUE"),
		InstanceId:            &h.instance,
	})
	if isNoLifecycleAction(err) {
		return false, nil
	}

	if err != nil {
		return false, fmt.Errorf(
			"complete lifecycle hook %s of auto scaling group %s: %w",
			h.name,
			h.group,
			err,
		)
	}

	return true, nil
}

// beat makes Auto Scaling wait for another heartbeat timeout.
func (h lifecycleHook) beat(ctx context.Context) error {
	_, err := h.api.RecordLifecycleActionHeartbeat(ctx, &autoscaling.RecordLifecycleActionHeartbeatInput{
		AutoScalingGroupName: &h.group,
		LifecycleHookName:    &h.name,
		InstanceId:           &h.instance,
	})
	if err != nil && !isNoLifecycleAction(err) {
		return fmt.Errorf(
			"prolong lifecycle hook %s of auto scaling group %s: %w",
			h.name,
			h.group,
			err,
		)
	}

	return nil
}

// isNoLifecycleAction reports whether err means that no hook waits for the instance: it was completed, has timed out,
// or the group has none. Auto Scaling has no code of its own for that.
func isNoLifecycleAction(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok || api.ErrorCode() != "ValidationError" {
		return false
	}

	m := api.ErrorMessage()

	return strings.Contains(m, "No active Lifecycle Action found") || strings.Contains(m, "No Lifecycle Hook found")
}
