// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"
	ec2sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// The suffixes of lifecycle states: an instance waits for its hooks, or continues after them.
const (
	waitSuffix    = ":Wait"
	proceedSuffix = ":Proceed"
)

// movement is a transition of an instance, and where the instance comes from and goes to, as events
// name it.
type movement struct{ transition, origin, destination string }

// startActions begins the actions of all hooks of a transition for an instance. It returns false if the group has
// no such hook, or if it is deleted with force, which skips the hooks.
func (s *Service) startActions(g *group, id string, m movement) bool {
	if g.Deleting {
		return false
	}

	now := s.cfg.Now()
	var actions []*lifecycleAction
	for _, name := range sdkshape.SortedKeys(g.Hooks) {
		h := g.Hooks[name]
		if h.Transition != m.transition {
			continue
		}

		actions = append(actions, &lifecycleAction{
			Hook:    name,
			Token:   sdkshape.RandomUUID(s.cfg.Rand),
			Default: h.DefaultResult,
			Expires: now.Add(time.Duration(h.HeartbeatSeconds) * time.Second),
			Limit:   now.Add(time.Duration(h.globalTimeout()) * time.Second),
			Seconds: h.HeartbeatSeconds,
		})
	}

	if len(actions) == 0 {
		return false
	}

	if g.Actions == nil {
		g.Actions = map[string][]*lifecycleAction{}
	}

	g.Actions[id] = actions
	s.store.MarkChanged()
	for _, a := range actions {
		emitAction(s, g, id, m, a)
	}

	return true
}

// actionsResult returns the result of the actions of an instance, or false while one is outstanding. One ABANDON
// ends all of them.
func (s lifecycleHandlers) actionsResult(g *group, id string) (string, bool) {
	now := s.cfg.Now()
	outstanding := false
	for _, a := range g.Actions[id] {
		if a.Result == "" && !now.Before(a.Expires) {
			a.Result = a.Default
			s.store.MarkChanged()
		}

		switch a.Result {
		case resultAbandon:
			return resultAbandon, true
		case "":
			outstanding = true
		}
	}

	return resultContinue, !outstanding
}

// proceedLifecycle lets the instances go on whose hooks have ended.
func (s lifecycleHandlers) proceedLifecycle(ctx context.Context, g *group) {
	for _, i := range slices.Concat(g.Shape.Instances, g.Warm) {
		id := sdkshape.String(i.InstanceId)
		lifecycle, isWaiting := strings.CutSuffix(sdkshape.String(i.LifecycleState), waitSuffix)
		if !isWaiting {
			continue
		}

		result, done := s.actionsResult(g, id)
		if !done && !g.Deleting {
			continue
		}

		delete(g.Actions, id)
		i.LifecycleState = new(lifecycle + proceedSuffix)
		s.store.MarkChanged()
		switch {
		case isTerminating(i):
			s.terminateEC2Instance(ctx, id)
		case result == resultAbandon:
			s.abandonLaunch(ctx, g, i)
		}
	}
}

// abandonLaunch terminates an instance whose launch hook was abandoned. The next launch is delayed, because it
// would probably fail as well.
func (s lifecycleHandlers) abandonLaunch(ctx context.Context, g *group, i *sdk.Instance) {
	id := sdkshape.String(i.InstanceId)
	for _, a := range g.Activities {
		if sdkshape.String(a.Details) == id {
			a.StatusCode = new(sdk.ScalingActivityStatusCodeCancelled)
			a.StatusMessage = new("Lifecycle action was completed with ABANDON: the instance " + id + " is terminated")
			a.EndTime = new(s.cfg.Now().UTC())
		}
	}

	s.delayNextLaunch(g)
	i.LifecycleState = new(terminatingState(i))
	s.setTargetLifecycleState(i, targetTerminated(i))
	s.terminateEC2Instance(ctx, id)
}

// beginTermination moves an instance to Terminating, or to Terminating:Wait if hooks wait for it. It reports
// whether none does, so that the instance can be terminated.
func (s *Service) beginTermination(g *group, i *sdk.Instance) bool {
	m := movement{transition: terminating, origin: placeGroup, destination: placeEC2}
	if isWarm(i) {
		m.origin = placePool
	}

	s.setTargetLifecycleState(i, targetTerminated(i))
	i.LifecycleState = new(terminatingState(i))
	s.store.MarkChanged()
	if !s.startActions(g, sdkshape.String(i.InstanceId), m) {
		return true
	}

	i.LifecycleState = new(*i.LifecycleState + waitSuffix)

	return false
}

// terminateEC2Instance terminates an instance in EC2.
func (s *Service) terminateEC2Instance(ctx context.Context, id string) {
	in := &ec2sdk.TerminateInstancesInput{InstanceIds: []*string{&id}}
	if _, err := s.cfg.EC2.TerminateInstances(ctx, in); err != nil {
		s.cfg.Log.ErrorContext(
			ctx,
			"failed to terminate an instance",
			slog.String("instance", id),
			slog.Any("error", err),
		)
	}
}

// isWarm reports whether an instance is in a warm pool.
func isWarm(i *sdk.Instance) bool {
	return strings.HasPrefix(sdkshape.String(i.LifecycleState), warmedPrefix)
}

// terminatingState returns the lifecycle state of an instance that terminates.
func terminatingState(i *sdk.Instance) string {
	if isWarm(i) {
		return sdk.LifecycleStateWarmedTerminating
	}

	return sdk.LifecycleStateTerminating
}

// targetTerminated returns the target lifecycle state of an instance that terminates.
func targetTerminated(i *sdk.Instance) string {
	if isWarm(i) {
		return sdk.LifecycleStateWarmedTerminated
	}

	return sdk.LifecycleStateTerminated
}

// isTerminating reports whether an instance is on its way out, with or without hooks.
func isTerminating(i *sdk.Instance) bool {
	return strings.HasPrefix(
		strings.TrimPrefix(sdkshape.String(i.LifecycleState), warmedPrefix),
		sdk.LifecycleStateTerminating,
	)
}

// pendingState returns the state in which a launched instance begins: it waits if the group has launch hooks.
func (s *Service) pendingState(g *group, i *sdk.Instance, pending string) *string {
	m := movement{transition: launching, origin: placeEC2, destination: placeGroup}
	if isWarm(i) {
		m.origin = placePool
	}

	if pending == warmPending {
		m.destination = placePool
	}

	if s.startActions(g, sdkshape.String(i.InstanceId), m) {
		return new(pending + waitSuffix)
	}

	return new(pending)
}
