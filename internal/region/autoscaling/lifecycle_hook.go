// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"regexp"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// The transitions that a lifecycle hook can wait for, and the results of a lifecycle action.
const (
	launching   = "autoscaling:EC2_INSTANCE_LAUNCHING"
	terminating = "autoscaling:EC2_INSTANCE_TERMINATING"

	resultContinue = "CONTINUE"
	resultAbandon  = "ABANDON"
)

// AWS's limits of lifecycle hooks. The global timeout is the shorter of 48 hours and 100 times the heartbeat
// timeout.
const (
	maxHooks             = 50
	minHeartbeat         = 30
	maxHeartbeat         = 7200
	defaultHeartbeat     = 3600
	maxGlobalTimeout     = 172800
	heartbeatsUntilLimit = 100
)

// lifecycleHandlers are the operations and the background work on lifecycle hooks.
type lifecycleHandlers struct{ *Service }

func (s lifecycleHandlers) ops() []wire.Operation {
	return []wire.Operation{
		state.WriteOperation(s.store, "PutLifecycleHook", s.putLifecycleHook),
		state.WriteOperation(s.store, "DeleteLifecycleHook", s.deleteLifecycleHook),
		state.ReadOperation(s.store, "DescribeLifecycleHooks", s.describeLifecycleHooks),
		state.WriteOperation(s.store, "CompleteLifecycleAction", s.completeLifecycleAction),
		state.WriteOperation(s.store, "RecordLifecycleActionHeartbeat", s.recordLifecycleActionHeartbeat),
	}
}

// lifecycleHook is a hook of a group.
type lifecycleHook struct {
	Transition       string // launching or terminating
	DefaultResult    string // of an action that nobody completes
	HeartbeatSeconds int64  // how long an action waits without a heartbeat
	Metadata         string // for a notification; empty for none
}

// globalTimeout returns how long an action of the hook can last with heartbeats, in seconds.
func (h lifecycleHook) globalTimeout() int64 {
	return min(h.HeartbeatSeconds*heartbeatsUntilLimit, maxGlobalTimeout)
}

// putLifecycleHook creates a hook, or changes the fields that the request has. Actions in progress keep the
// timeouts that they began with.
func (s lifecycleHandlers) putLifecycleHook(in *sdk.PutLifecycleHookInput) (*sdk.PutLifecycleHookOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}

	name := sdkshape.String(in.LifecycleHookName)
	h, exists := g.Hooks[name]
	if !exists {
		if len(g.Hooks) >= maxHooks {
			return nil, newErrorf(
				codeLimitExceeded,
				"The number of lifecycle hooks has reached its limit of %d",
				maxHooks,
			)
		}

		h = lifecycleHook{DefaultResult: resultAbandon, HeartbeatSeconds: defaultHeartbeat}
	}

	h, err = h.withRequest(name, in)
	if err != nil {
		return nil, err
	}

	if g.Hooks == nil {
		g.Hooks = map[string]lifecycleHook{}
	}

	g.Hooks[name] = h

	return &sdk.PutLifecycleHookOutput{}, nil
}

// withRequest returns the hook with the fields that a request has. It refuses what is not valid.
func (h lifecycleHook) withRequest(name string, in *sdk.PutLifecycleHookInput) (lifecycleHook, error) {
	h.Transition = *textOrDefault(in.LifecycleTransition, h.Transition)
	h.DefaultResult = *textOrDefault(in.DefaultResult, h.DefaultResult)
	h.HeartbeatSeconds = *numberOrDefault(in.HeartbeatTimeout, h.HeartbeatSeconds)
	h.Metadata = *textOrDefault(in.NotificationMetadata, h.Metadata)
	validName := regexp.MustCompile(`^[A-Za-z0-9\-_/]{1,255}$`)

	switch {
	case !validName.MatchString(name):
		return h, validationError(
			"1 validation error detected: Value '%s' at 'lifecycleHookName' failed to satisfy constraint: "+
				"Member must satisfy regular expression pattern: [A-Za-z0-9\\-_\\/]+",
			name,
		)

	case h.Transition != launching && h.Transition != terminating:
		return h, validationError("LifecycleTransition '%s' must be %s or %s", h.Transition, launching, terminating)
	case !isResult(h.DefaultResult):
		return h, validationError("DefaultResult '%s' must be CONTINUE or ABANDON", h.DefaultResult)
	case h.HeartbeatSeconds < minHeartbeat || h.HeartbeatSeconds > maxHeartbeat:
		return h, validationError(
			"HeartbeatTimeout %d must be from %d to %d seconds",
			h.HeartbeatSeconds,
			minHeartbeat,
			maxHeartbeat,
		)

	case sdkshape.String(in.NotificationTargetARN) != "" || sdkshape.String(in.RoleARN) != "":
		return h, validationError("This region has no SNS and no SQS: remove NotificationTargetARN and RoleARN")
	}

	return h, nil
}

func isResult(r string) bool { return r == resultContinue || r == resultAbandon }

// addInitialHooks adds the hooks of a request that creates a group.
func (g *group) addInitialHooks(hooks []*sdk.LifecycleHookSpecification) error {
	g.Hooks = map[string]lifecycleHook{}
	for _, spec := range hooks {
		h := lifecycleHook{DefaultResult: resultAbandon, HeartbeatSeconds: defaultHeartbeat}
		h, err := h.withRequest(sdkshape.String(spec.LifecycleHookName), &sdk.PutLifecycleHookInput{
			DefaultResult:         spec.DefaultResult,
			HeartbeatTimeout:      spec.HeartbeatTimeout,
			LifecycleTransition:   spec.LifecycleTransition,
			NotificationMetadata:  spec.NotificationMetadata,
			NotificationTargetARN: spec.NotificationTargetARN,
			RoleARN:               spec.RoleARN,
		})
		if err != nil {
			return err
		}

		g.Hooks[sdkshape.String(spec.LifecycleHookName)] = h
	}

	return nil
}

// deleteLifecycleHook deletes a hook. Its outstanding actions end first: those of starting instances are
// abandoned, those of terminating ones continue.
func (s lifecycleHandlers) deleteLifecycleHook(
	in *sdk.DeleteLifecycleHookInput,
) (*sdk.DeleteLifecycleHookOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}

	name := sdkshape.String(in.LifecycleHookName)
	h, exists := g.Hooks[name]
	if !exists {
		return nil, validationError("No Lifecycle Hook found with name %s", name)
	}

	result := resultContinue
	if h.Transition == launching {
		result = resultAbandon
	}

	for _, actions := range g.Actions {
		for _, a := range actions {
			if a.Hook == name && a.Result == "" {
				a.Result = result
			}
		}
	}

	delete(g.Hooks, name)

	return &sdk.DeleteLifecycleHookOutput{}, nil
}

func (s lifecycleHandlers) describeLifecycleHooks(
	in *sdk.DescribeLifecycleHooksInput,
) (*sdk.DescribeLifecycleHooksOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}

	wanted := sdkshape.Strings(in.LifecycleHookNames)
	out := &sdk.DescribeLifecycleHooksOutput{LifecycleHooks: []*sdk.LifecycleHook{}}
	for _, name := range sdkshape.SortedKeys(g.Hooks) {
		if len(wanted) > 0 && !slices.Contains(wanted, name) {
			continue
		}

		h := g.Hooks[name]
		hook := &sdk.LifecycleHook{
			AutoScalingGroupName: g.Shape.AutoScalingGroupName,
			LifecycleHookName:    new(name),
			LifecycleTransition:  new(h.Transition),
			DefaultResult:        new(h.DefaultResult),
			HeartbeatTimeout:     new(h.HeartbeatSeconds),
			GlobalTimeout:        new(h.globalTimeout()),
		}
		if h.Metadata != "" {
			hook.NotificationMetadata = new(h.Metadata)
		}

		out.LifecycleHooks = append(out.LifecycleHooks, hook)
	}

	return out, nil
}

// lifecycleAction is one instance that waits for one hook.
type lifecycleAction struct {
	Hook    string    // its name
	Token   string    // identifies the action
	Default string    // result if nobody completes the action
	Expires time.Time // when the default result is used, unless a heartbeat comes before
	Limit   time.Time // the latest time of Expires
	Seconds int64     // heartbeat timeout
	Result  string    // empty while the action is outstanding
}

// isNamed reports whether a request names the action of an instance by its token, or without one by the instance.
func (a *lifecycleAction) isNamed(id string, token, instance *string) bool {
	if token != nil {
		return a.Token == *token
	}

	return instance != nil && id == *instance
}

// findAction returns the outstanding action that a request names by its token or by its instance.
func (g *group) findAction(hook string, token, instance *string) (*lifecycleAction, error) {
	if g.Hooks[hook] == (lifecycleHook{}) {
		return nil, validationError("No Lifecycle Hook found with name %s", hook)
	}

	for _, id := range sdkshape.SortedKeys(g.Actions) {
		for _, a := range g.Actions[id] {
			if a.Hook == hook && a.Result == "" && a.isNamed(id, token, instance) {
				return a, nil
			}
		}
	}

	switch {
	case token != nil:
		return nil, validationError("No active Lifecycle Action found with token %s", *token)
	case instance != nil:
		return nil, validationError("No active Lifecycle Action found with instance ID %s", *instance)
	}

	return nil, validationError("Either LifecycleActionToken or InstanceId must be specified")
}

// actionName is how a request names a lifecycle action: by its token or by its instance.
type actionName struct{ group, hook, token, instance *string }

// findAction returns the lifecycle action that a request names.
func (s lifecycleHandlers) findAction(name actionName) (*lifecycleAction, error) {
	g, err := s.findGroup(name.group)
	if err != nil {
		return nil, err
	}

	return g.findAction(sdkshape.String(name.hook), name.token, name.instance)
}

// completeLifecycleAction ends an action. The group continues with its next reconciliation.
func (s lifecycleHandlers) completeLifecycleAction(
	in *sdk.CompleteLifecycleActionInput,
) (*sdk.CompleteLifecycleActionOutput, error) {
	result := sdkshape.String(in.LifecycleActionResult)
	if !isResult(result) {
		return nil, validationError("LifecycleActionResult '%s' must be CONTINUE or ABANDON", result)
	}

	a, err := s.findAction(actionName{in.AutoScalingGroupName, in.LifecycleHookName, in.LifecycleActionToken, in.InstanceId})
	if err != nil {
		return nil, err
	}

	a.Result = result

	return &sdk.CompleteLifecycleActionOutput{}, nil
}

// recordLifecycleActionHeartbeat prolongs an action by its heartbeat timeout, up to the global timeout.
func (s lifecycleHandlers) recordLifecycleActionHeartbeat(
	in *sdk.RecordLifecycleActionHeartbeatInput,
) (*sdk.RecordLifecycleActionHeartbeatOutput, error) {
	a, err := s.findAction(actionName{in.AutoScalingGroupName, in.LifecycleHookName, in.LifecycleActionToken, in.InstanceId})
	if err != nil {
		return nil, err
	}

	a.Expires = s.cfg.Now().Add(time.Duration(a.Seconds) * time.Second)
	if a.Expires.After(a.Limit) {
		a.Expires = a.Limit
	}

	return &sdk.RecordLifecycleActionHeartbeatOutput{}, nil
}
