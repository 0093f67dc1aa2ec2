// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/drain"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// decisionInterval is the time between two decisions. A new machine takes some 40 s to join.
const decisionInterval = 5 * time.Second

// machineTerminator terminates machines, which their groups replace.
type machineTerminator interface {
	Terminate(ctx context.Context, id string) error
}

// updater carries out one rolling update.
type updater struct {
	env      *cluster.Env
	request  Request
	client   kubernetes.Interface
	observer observer
	machines machineTerminator
	interval time.Duration // between two decisions; zero: decisionInterval

	replaced   int
	terminated map[string]bool // AWS shows some of them as running for a while
	reported   string          // what the last message told to wait for

	drains sync.WaitGroup
	mu     sync.Mutex
	// draining has the machines whose drain runs; its result is in failed.
	draining map[string]bool
	failed   error
}

// replaceAll decides and acts until every machine is up to date.
func (u *updater) replaceAll(ctx context.Context, options rollout.Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer u.drains.Wait()
	defer cancel()
	u.terminated = map[string]bool{}
	u.draining = map[string]bool{}

	start := u.env.Now()
	for {
		done, err := u.step(ctx, options, start)
		if done || err != nil {
			return u.describeEnd(err)
		}

		interval := u.interval
		if interval == 0 {
			interval = decisionInterval
		}

		select {
		case <-ctx.Done():
			return u.describeEnd(ctx.Err())
		case <-time.After(interval):
		}
	}
}

// step observes, decides and acts once.
func (u *updater) step(ctx context.Context, options rollout.Options, start time.Time) (bool, error) {
	if err := u.drainError(); err != nil {
		return false, err
	}

	o, err := u.observer.observe(ctx)
	if err != nil {
		return false, err
	}

	for i := range o.Machines {
		if u.terminated[o.Machines[i].ID] {
			o.Machines[i].State = rollout.StateTerminating
		}
	}

	d := rollout.Decide(o, options)
	if d.Failure != "" {
		return false, diag.WithHint(
			fmt.Errorf("stopped after %d machines: %s", u.replaced, d.Failure),
			"slipway validate cluster "+u.request.Name+" shows why; machines that were not replaced keep running",
		)
	}

	for _, a := range d.Actions {
		if err := u.act(ctx, a); err != nil {
			return false, err
		}
	}

	u.reportWaiting(d, u.env.Now().Sub(start))

	return d.IsDone(), nil
}

// act starts a drain in the background, or terminates a machine.
func (u *updater) act(ctx context.Context, a rollout.Action) error {
	if a.Type == rollout.ActionDrain {
		return u.startDrain(ctx, a)
	}

	u.env.Notifyf("terminate machine %s of %s (node %s)", a.Machine.ID, a.Machine.Group, a.Machine.NodeName)
	if err := u.machines.Terminate(ctx, a.Machine.ID); err != nil {
		return err
	}

	u.terminated[a.Machine.ID] = true
	u.replaced++

	return nil
}

// startDrain cordons a node and evicts its pods in the background, unless that runs already.
func (u *updater) startDrain(ctx context.Context, a rollout.Action) error {
	u.mu.Lock()
	running := u.draining[a.Machine.ID]
	u.draining[a.Machine.ID] = true
	u.mu.Unlock()
	if running {
		return nil
	}

	node := a.Machine.NodeName
	u.env.Notifyf("drain node %s (machine %s of %s): %s", node, a.Machine.ID, a.Machine.Group, a.Reason)
	if err := drain.Cordon(ctx, u.client, node, rollout.StartedAnnotation, a.Machine.ID); err != nil {
		return err
	}

	drainer := drain.Drainer{
		Client:    u.client,
		Timeout:   u.request.DrainTimeout,
		Now:       u.env.Now,
		OnBlocked: u.reportBlockers,
	}

	u.drains.Go(func() {
		err := drainer.Run(ctx, node)
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.draining, a.Machine.ID)
		if err != nil && !errors.Is(err, context.Canceled) {
			u.failed = errors.Join(u.failed, err)
		}
	})

	return nil
}

// drainError returns the errors of the drains that failed, with what to do.
func (u *updater) drainError() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.failed == nil {
		return nil
	}

	if errors.Is(u.failed, drain.ErrTimeout) {
		return diag.WithHint(
			u.failed,
			"let the named pods move (check their disruption budgets), then rerun the command: it continues; "+
				"the node stays cordoned until then",
		)
	}

	return u.failed
}

// reportBlockers reports what a drain waits for.
func (u *updater) reportBlockers(node string, blockers []drain.Blocker) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(blockers) > 0 {
		u.env.Notifyf("node %s waits for %s", node, drain.FormatBlockers(blockers, u.env.Now()))
	}
}

// reportWaiting reports why nothing more is replaced, whenever that changes.
func (u *updater) reportWaiting(d rollout.Decision, elapsed time.Duration) {
	text := strings.Join(slices.Compact(slices.Sorted(slices.Values(d.Waiting))), "; ")
	if text == "" || text == u.reported {
		return
	}

	u.reported = text
	u.mu.Lock()
	defer u.mu.Unlock()
	u.env.Notifyf("%d:%02d waiting: %s", int(elapsed.Minutes()), int(elapsed.Seconds())%60, text)
}

// describeEnd adds to the error of an interrupted update how far it came.
func (u *updater) describeEnd(err error) error {
	if err == nil || !errors.Is(err, context.Canceled) {
		return err
	}

	return diag.WithHint(
		fmt.Errorf("interrupted: %d machines were replaced: %w", u.replaced, err),
		"rerun the command to continue; a node that was being drained stays cordoned until then",
	)
}
