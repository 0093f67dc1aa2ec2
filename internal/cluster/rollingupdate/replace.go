// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster/drain"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

const (
	// decisionInterval is the time between two decisions. A new machine takes some 40 s to join.
	decisionInterval = 5 * time.Second
	// settleTime is the time between the end of a drain and the next decision.
	settleTime = 500 * time.Millisecond
	// parallelActions is how many steps of a decision are carried out at the same time.
	parallelActions = 8
)

// fleet changes machines in AWS.
type fleet interface {
	machineLister
	// Terminate ends a machine, which its group replaces.
	Terminate(ctx context.Context, m rollout.Machine) error
	// Detach removes a machine from its group, which launches a new one.
	Detach(ctx context.Context, m rollout.Machine) error
	// SetVersion makes a group launch machines from a version of its launch template.
	SetVersion(ctx context.Context, g rollout.Group, version string) error
	// Avoid sets the launch template versions that groups do not move to, by group and slot.
	Avoid(versions map[string]string)
	// BootStage returns the last stage that a machine reported on its console.
	BootStage(ctx context.Context, id string) string
}

// updater carries out one rolling update.
type updater struct {
	request  Request
	client   kubernetes.Interface
	observer observer
	gates    gateChecker
	machines fleet
	now      func() time.Time
	warn     func(diag.Findings)
	notify   func(format string, args ...any)
	interval time.Duration // between two decisions; zero: decisionInterval
	report   *reporter
	stages   bootStages
	turn     controlPlaneTurn
	idle     stallWatch
	good     goodVersions
	// leaveDelay is how long a drained machine stays because of load balancers; zero: [drain.BalancerDelay].
	leaveDelay time.Duration
	balancers  balancerMemory
	// documents returns to the node documents of a rollback; nil: not.
	documents documentPublisher
	pools     pools // of Karpenter; nil without any
	// save records how far the update has come; nil: nowhere.
	save func(ctx context.Context, replaced int, remark string) error

	drains sync.WaitGroup
	wake   chan struct{} // a drain has ended
	mu     sync.Mutex
	// memory of this run, by machine: AWS and Kubernetes show changes late.
	memory map[string]machineMemory
	failed error // of the drains that failed
	// versions are the launch template versions that this run has set, by group: AWS may show older ones.
	versions map[string]string
	// left are the versions that a rollback leaves, by group and slot.
	left map[string]string
	// moved are the versions that this run has set on groups before it replaced their machines.
	moved map[string]string
}

// machineMemory is what this run has done with one machine.
type machineMemory struct {
	draining, drained, detached, terminated bool
	// ending is set before the machine is terminated.
	ending bool
	// served is set if the machine was seen to serve, and downSince when it was seen not to serve first.
	served    bool
	downSince time.Time
	// failingSince is since when the API refuses changes of the node.
	failingSince time.Time
	// nodeName is the name of the node that was drained.
	nodeName      string
	handOverTo    string
	handOverSince time.Time
}

// remember changes the memory of a machine, and returns what it was.
func (u *updater) remember(id string, change func(*machineMemory)) machineMemory {
	u.mu.Lock()
	defer u.mu.Unlock()
	was := u.memory[id]
	now := was
	change(&now)
	u.memory[id] = now

	return was
}

// replaceAll decides and acts until every machine is up to date, or until stop is closed and what had begun is
// complete. ctx ends it at once.
func (u *updater) replaceAll(ctx context.Context, stop <-chan struct{}, options rollout.Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer u.endTurn(ctx)
	defer u.returnToBalancers(ctx)
	defer u.drains.Wait()
	defer cancel()
	u.memory = keepService(u.memory)
	u.wake = make(chan struct{}, 1)
	u.failed = nil
	u.idle = stallWatch{}

	for {
		done, err := u.step(ctx, options)
		if done || err != nil {
			return u.describeEnd(options, err)
		}

		timer := time.NewTimer(u.pause())

		select {
		case <-ctx.Done():
			timer.Stop()
			return u.describeEnd(options, context.Cause(ctx))
		case <-stop:
			stop = nil
			options.Stopping = true
			u.report.tell(
				EventStopping,
				rollout.Machine{},
				"stopping after the machines that are being drained; interrupt again to stop at once",
			)
		case <-u.wake:
			// The drains of a batch end at almost the same time: one decision is enough for them.
			timer.Reset(min(u.pause(), settleTime))

			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		case <-timer.C:
		}

		timer.Stop()
	}
}

// keepService returns the part of a memory that outlives the begin of a replacement: since when machines do not serve.
func keepService(memory map[string]machineMemory) map[string]machineMemory {
	out := map[string]machineMemory{}
	for id, m := range memory {
		out[id] = machineMemory{served: m.served, downSince: m.downSince}
	}

	return out
}

// pause returns the time until the next decision.
func (u *updater) pause() time.Duration {
	if u.interval == 0 {
		return decisionInterval
	}

	return u.interval
}

// step observes, decides and acts once.
func (u *updater) step(ctx context.Context, options rollout.Options) (bool, error) {
	if err := u.drainError(); err != nil {
		return false, err
	}

	o, err := u.observer.observe(ctx)
	if err != nil {
		return false, err
	}

	if refusal := findRefusal(o, u.request.Groups); refusal != "" && !u.ignoresRefusals() {
		return false, u.failure(refusal, nil)
	}

	u.addMemory(&o)
	u.stages.addTo(ctx, u.machines, &o)
	d := rollout.Decide(o, options)
	if len(d.Failed) > 0 && u.stages.addFailed(ctx, u.machines, &o, d.Failed) {
		d = rollout.Decide(o, options)
	}

	if d.Begins() {
		u.gates.addTo(ctx, u.observer.settings, &o)
		d = rollout.Decide(o, options)
	}

	if d.Failure == "" {
		d = u.takeTurn(ctx, o, d)
	}

	u.report.update(o, options, d)
	if d.Failure != "" {
		return false, u.failure(d.Failure, d.Failed)
	}

	return u.carryOut(ctx, o, options, d)
}

// carryOut does what was decided, and reports whether nothing is left to do.
func (u *updater) carryOut(
	ctx context.Context,
	o rollout.Observation,
	options rollout.Options,
	d rollout.Decision,
) (bool, error) {
	if stalled := u.idle.check(o, d, options.JoinTimeout); stalled != "" {
		return false, u.failure(stalled, nil)
	}

	if err := u.moveGroups(ctx, rollout.GroupsToMove(o, options, d)); err != nil {
		return false, err
	}

	if err := u.actAll(ctx, d.Actions); err != nil {
		return false, err
	}

	return d.IsDone(), nil
}

// addMemory adds to an observation what this run has done and AWS and Kubernetes may not show yet.
func (u *updater) addMemory(o *rollout.Observation) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.memory == nil {
		u.memory = map[string]machineMemory{}
	}

	for i := range o.Groups {
		g := &o.Groups[i]
		g.Version = cmp.Or(u.versions[groupKey(g.Name, g.Slot)], g.Version)
	}

	for i := range o.Machines {
		m := &o.Machines[i]
		done := u.memory[m.ID]
		m.Drained = m.Started && done.drained
		m.Detached = m.Detached || done.detached
		if m.HandOverTo == "" {
			m.HandOverTo = done.handOverTo
			m.HandOverSince = done.handOverSince
		}

		if done.terminated {
			m.State = rollout.StateTerminating
		}

		u.memory[m.ID] = done.noteService(m, o.Now)
	}
}

// noteService returns the memory of a machine after an observation, and adds to the observation since when the machine does
// not serve, if its node does not tell.
func (x machineMemory) noteService(m *rollout.Machine, now time.Time) machineMemory {
	switch {
	case m.IsServing():
		x.served = true
		x.downSince = time.Time{}
	case x.downSince.IsZero() && (x.served || m.NodeReady):
		x.downSince = now
	}

	if m.DownSince.IsZero() {
		m.DownSince = x.downSince
	}

	return x
}

// actAll carries out the steps of one decision, several at a time, and records how far the update has come.
func (u *updater) actAll(ctx context.Context, actions []rollout.Action) error {
	var steps errgroup.Group
	steps.SetLimit(parallelActions)
	changed := ""
	for _, a := range actions {
		if a.Type == rollout.ActionTerminate {
			changed = "terminated machine " + a.Machine.ID + " of " + a.Machine.Group
		}

		steps.Go(func() error { return u.act(ctx, a) })
	}

	err := steps.Wait()
	if changed == "" || u.save == nil || err != nil {
		return err
	}

	replaced, _ := u.report.counts()

	return u.save(ctx, replaced, changed)
}

// act carries out one step.
func (u *updater) act(ctx context.Context, a rollout.Action) error {
	m := a.Machine
	switch a.Type {
	case rollout.ActionMark, rollout.ActionUnmark:
		err := drain.SetTaint(ctx, u.client, m.NodeName, rollout.OutdatedTaint, a.Type == rollout.ActionMark)

		return u.tolerate(ctx, m, err)

	case rollout.ActionDetach:
		u.report.tell(EventDetach, m, fmt.Sprintf("detach machine %s of %s (node %s), so that a new one starts first: %s",
			m.ID, m.Group, m.NodeName, a.Reason))
		if err := u.machines.Detach(ctx, m); err != nil {
			return ignoreGone(err) // the next decision sees that it has ended
		}

		u.remember(m.ID, func(x *machineMemory) { x.detached = true })

		return nil

	case rollout.ActionHandOver:
		return u.handOver(ctx, a)
	case rollout.ActionDrain:
		return u.startDrain(ctx, a)
	case rollout.ActionTerminate:
		return u.terminate(ctx, m)
	}

	return fmt.Errorf("unknown step %s of machine %s", a.Type, m.ID)
}

// handOver asks a control-plane machine to hand over its slot. Its agent does so.
func (u *updater) handOver(ctx context.Context, a rollout.Action) error {
	m := a.Machine
	now := u.now().UTC()
	u.report.tell(EventHandOver, m, fmt.Sprintf("machine %s hands over slot %s of %s to %s, which is prepared",
		m.ID, m.Slot, m.Group, a.Successor))
	value := a.Successor + " " + now.Format(time.RFC3339)
	err := drain.Annotate(ctx, u.client, m.NodeName, report.HandOverAnnotation, value)
	if err != nil {
		return u.tolerate(ctx, m, err)
	}

	u.remember(m.ID, func(x *machineMemory) {
		x.handOverTo = a.Successor
		x.handOverSince = now
	})

	return nil
}

// terminate ends a machine, unless this run has done that already.
func (u *updater) terminate(ctx context.Context, m rollout.Machine) error {
	u.remember(m.ID, func(x *machineMemory) { x.ending = true })
	err := u.machines.Terminate(ctx, m)
	if err != nil && !errors.Is(err, errGone) {
		return err
	}

	u.remember(m.ID, func(x *machineMemory) { x.terminated = true })
	if errors.Is(err, errGone) {
		return nil // Spot, a smaller group or a repair was faster
	}

	u.report.addReplaced()
	u.report.tell(
		EventTerminate,
		m,
		fmt.Sprintf("terminate machine %s of %s (node %s)", m.ID, m.Group, m.NodeName),
	)

	return nil
}

// ignoreGone returns nil for the error of a machine that somebody else has ended.
func ignoreGone(err error) error {
	if errors.Is(err, errGone) {
		return nil
	}

	return err
}

// tolerate returns nil for the result of a change of a node after which the next decision repeats the step with what there
// is then: the node is gone or has changed, or the API does not answer for a moment.
func (u *updater) tolerate(ctx context.Context, m rollout.Machine, err error) error {
	now := u.now()
	var since time.Time
	u.remember(m.ID, func(x *machineMemory) {
		switch {
		case err == nil:
			x.failingSince = time.Time{}
		case x.failingSince.IsZero():
			x.failingSince = now
		}

		since = x.failingSince
	})

	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}

	if ctx.Err() == nil && isTransient(err) && now.Sub(since) < u.request.JoinTimeout {
		return nil
	}

	return err
}

// isTransient reports whether a request to the API may succeed when it is repeated.
func isTransient(err error) bool {
	var status apierrors.APIStatus

	return !errors.As(err, &status) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

// stoppedError is the error of an update that stopped because of failures.
type stoppedError struct {
	replaced int
	reason   string
}

func (f stoppedError) Error() string {
	return fmt.Sprintf("stopped after %d machines: %s", f.replaced, f.reason)
}

// failure returns the error of an update that must stop, and reports it.
func (u *updater) failure(reason string, failed []rollout.Machine) error {
	replaced, _ := u.report.counts()
	err := stoppedError{replaced: replaced, reason: reason}
	var about rollout.Machine
	if len(failed) > 0 {
		about = failed[0]
	}

	u.report.tell(EventFailed, about, err.Error())

	return diag.WithHint(
		err,
		"slipway validate cluster "+u.request.Name+" shows why; machines that were not replaced keep running; "+
			"to return to the last good configuration: slipway rolling-update cluster "+u.request.Name+" --rollback",
	)
}

// describeEnd adds to the error of an interrupted update how far it came. An update that was asked to stop ends with
// such an error, too.
func (u *updater) describeEnd(options rollout.Options, err error) error {
	if err == nil && options.Stopping {
		err = context.Canceled
	}

	if err == nil || !errors.Is(err, context.Canceled) {
		return err
	}

	replaced, total := u.report.counts()

	return diag.WithHint(
		fmt.Errorf("interrupted: %d of %d machines were replaced%s: %w", replaced, total, u.describeUnfinished(), err),
		"rerun the command to continue; slipway rolling-update status "+u.request.Name+" shows what is left",
	)
}

// describeUnfinished names the machines whose drain had begun and did not end.
func (u *updater) describeUnfinished() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var ids []string
	for id, m := range u.memory {
		if (m.draining || m.drained) && !m.terminated {
			ids = append(ids, id)
		}
	}

	if len(ids) == 0 {
		return ""
	}

	slices.Sort(ids)

	return ", machine " + strings.Join(ids, ", ") + " is cordoned"
}

// formatElapsed formats a duration as minutes and seconds.
func formatElapsed(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}
