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

// ScalingAPI lists the operations of Auto Scaling that the agent uses. A worker may only complete and prolong its own
// termination.
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

// terminationHook is the lifecycle hook of an instance's Auto Scaling group.
type terminationHook struct {
	api      ScalingAPI
	group    string // name of the Auto Scaling group
	instance string
}

// newTerminationHook returns the hook of this machine.
func newTerminationHook(a *Agent) terminationHook {
	name := node.ScalingGroupName(a.Boot.Cluster, a.Boot.Group, a.Boot.Slot)

	return terminationHook{api: a.Scaling, group: name, instance: a.instance.ID}
}

// complete lets Auto Scaling terminate the instance. It succeeds if nothing waits for the instance any more.
func (h terminationHook) complete(ctx context.Context) error {
	_, err := h.api.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName:  &h.group,
		LifecycleHookName:     aws.String(node.TerminationHook),
		LifecycleActionResult: aws.String("CONTINUE"),
		InstanceId:            &h.instance,
	})
	if err != nil && !isNoLifecycleAction(err) {
		return fmt.Errorf(
			"complete lifecycle hook %s of auto scaling group %s: %w",
			node.TerminationHook,
			h.group,
			err,
		)
	}

	return nil
}

// beat makes Auto Scaling wait for another heartbeat timeout.
func (h terminationHook) beat(ctx context.Context) error {
	_, err := h.api.RecordLifecycleActionHeartbeat(ctx, &autoscaling.RecordLifecycleActionHeartbeatInput{
		AutoScalingGroupName: &h.group,
		LifecycleHookName:    aws.String(node.TerminationHook),
		InstanceId:           &h.instance,
	})
	if err != nil && !isNoLifecycleAction(err) {
		return fmt.Errorf(
			"prolong lifecycle hook %s of auto scaling group %s: %w",
			node.TerminationHook,
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
