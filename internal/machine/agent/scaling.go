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

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/join"
)

// LifecycleSender has the control plane tell Auto Scaling about this machine: the role of a worker has no right to do that
// itself, because IAM cannot limit it to one of the machines that share the role.
type LifecycleSender interface {
	// SendLifecycle reports whether Auto Scaling waited for the machine.
	SendLifecycle(ctx context.Context, action join.LifecycleAction) (waited bool, err error)
}

// lifecycleHook is a lifecycle hook of this machine. Only groups of workers have hooks.
type lifecycleHook struct {
	sender LifecycleSender // nil: the machine is no worker
	name   string
}

// newLifecycleHook returns the hook with a name for this machine.
func newLifecycleHook(a *Agent, name string) lifecycleHook {
	switch {
	case a.doc.Role != v1alpha1.RoleWorker:
		return lifecycleHook{name: name}
	case a.Lifecycle != nil:
		return lifecycleHook{a.Lifecycle, name}
	}

	return lifecycleHook{a.newJoinClient(), name}
}

// completeWaiting lets Auto Scaling continue with the machine, and reports whether it was waiting. It succeeds also if nothing
// waits for the machine any more.
func (h lifecycleHook) completeWaiting(ctx context.Context) (bool, error) {
	return h.send(ctx, join.LifecycleComplete)
}

// beat makes Auto Scaling wait for another heartbeat timeout.
func (h lifecycleHook) beat(ctx context.Context) error {
	_, err := h.send(ctx, join.LifecycleHeartbeat)

	return err
}

func (h lifecycleHook) send(ctx context.Context, kind join.LifecycleKind) (bool, error) {
	if h.sender == nil {
		return false, nil
	}

	return h.sender.SendLifecycle(ctx, join.LifecycleAction{Hook: h.name, Kind: kind})
}

// ScalingAPI lists the operations of Auto Scaling by which control-plane machines speak for the workers for which it waits.
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

// groupHook is a lifecycle hook of an Auto Scaling group, about one of its machines.
type groupHook struct {
	api      ScalingAPI
	name     string
	group    string // name of the Auto Scaling group
	instance string
}

// actForMachine does a lifecycle action for a worker that has proved which machine it is. The group is the one that AWS
// says has launched the machine. It reports whether Auto Scaling waited for the machine.
func actForMachine(
	ctx context.Context,
	api ScalingAPI,
	m join.Machine,
	action join.LifecycleAction,
) (waited bool, err error) {
	hook := groupHook{
		api:      api,
		name:     action.Hook,
		group:    m.ScalingGroup,
		instance: m.ID,
	}
	if action.Kind == join.LifecycleHeartbeat {
		return hook.beat(ctx)
	}

	return hook.complete(ctx)
}

// complete lets Auto Scaling continue with the machine, and reports whether it was waiting.
func (h groupHook) complete(ctx context.Context) (bool, error) {
	_, err := h.api.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName:  &h.group,
		LifecycleHookName:     &h.name,
		LifecycleActionResult: aws.String("CONTINUE"),
		InstanceId:            &h.instance,
	})

	return h.waited("complete", err)
}

// beat makes Auto Scaling wait for another heartbeat timeout, and reports whether it was waiting.
func (h groupHook) beat(ctx context.Context) (bool, error) {
	_, err := h.api.RecordLifecycleActionHeartbeat(ctx, &autoscaling.RecordLifecycleActionHeartbeatInput{
		AutoScalingGroupName: &h.group,
		LifecycleHookName:    &h.name,
		InstanceId:           &h.instance,
	})

	return h.waited("prolong", err)
}

// waited reports whether a call was about a machine for which Auto Scaling waits.
func (h groupHook) waited(what string, err error) (bool, error) {
	if isNoLifecycleAction(err) {
		return false, nil
	}

	if err != nil {
		return false, fmt.Errorf("%s lifecycle hook %s of auto scaling group %s: %w", what, h.name, h.group, err)
	}

	return true, nil
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
