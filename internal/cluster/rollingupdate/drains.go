// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/drain"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// blockedInterval is the time after which a drain that still waits for the same pods is reported again.
const blockedInterval = time.Minute

// startDrain cordons a node and evicts its pods in the background, unless that runs already or has ended since the
// decision was taken.
func (u *updater) startDrain(ctx context.Context, a rollout.Action) error {
	m := a.Machine
	ended := func(x machineMemory) bool { return x.drained && m.Started }
	was := u.remember(m.ID, func(x *machineMemory) { x.draining = x.draining || !ended(*x) })
	if was.draining || ended(was) {
		return nil
	}

	u.report.tell(EventDrain, m, fmt.Sprintf("drain node %s (machine %s of %s): %s", m.NodeName, m.ID, m.Group, a.Reason))
	if err := drain.Cordon(ctx, u.client, drain.CordonRequest{
		Node:       m.NodeName,
		Annotation: rollout.StartedAnnotation,
		Value:      m.ID,
	}); err != nil {
		u.remember(m.ID, func(x *machineMemory) { x.draining = false })

		return u.tolerate(ctx, m, err)
	}

	drainer := drain.Drainer{
		Client:         u.client,
		Timeout:        u.observer.settings.of(m.Group).drainTimeout,
		Now:            u.now,
		Interval:       min(u.interval, time.Second),
		Exclude:        !m.Excluded,
		Delay:          u.balancerDelay(ctx, m),
		RepeatInterval: blockedInterval,
		OnBlocked:      func(_ string, b []drain.Blocker) { u.reportBlockers(m, b) },
	}

	start := u.now()
	u.drains.Go(func() {
		err := drainer.Run(ctx, m.NodeName)
		u.report.setBlocked(m.NodeName, "")
		u.endDrain(m, err)
		if err == nil {
			u.report.addDrain(u.now().Sub(start))
		}
	})

	return nil
}

// balancerMemory is whether the cluster has load balancers, as it was read last.
type balancerMemory struct {
	mu      sync.Mutex
	readAt  time.Time
	present bool
}

// balancerDelay returns how long the machine of a node stays at least when its pods are gone, so that controllers can take it
// out of the load balancers of Services: 0 if there are none, or if the node is in none.
func (u *updater) balancerDelay(ctx context.Context, m rollout.Machine) time.Duration {
	if m.Excluded {
		return 0
	}

	delay := u.leaveDelay
	if delay == 0 {
		delay = drain.BalancerDelay
	}

	u.balancers.mu.Lock()
	defer u.balancers.mu.Unlock()
	if u.balancers.readAt.IsZero() || u.now().Sub(u.balancers.readAt) > balancerMemoryAge {
		present, err := drain.HasLoadBalancers(ctx, u.client)
		if err != nil {
			return delay // there may be some
		}

		u.balancers.readAt = u.now()
		u.balancers.present = present
	}

	if !u.balancers.present {
		return 0
	}

	return delay
}

// balancerMemoryAge is how long it is believed that a cluster has load balancers, or has none.
const balancerMemoryAge = time.Minute

// endDrain records the result of a drain and wakes the loop.
func (u *updater) endDrain(m rollout.Machine, err error) {
	u.remember(m.ID, func(x *machineMemory) {
		x.draining = false
		x.drained = err == nil
		x.nodeName = m.NodeName
	})
	u.mu.Lock()
	if err != nil && !errors.Is(err, context.Canceled) {
		u.failed = errors.Join(u.failed, err)
	}
	u.mu.Unlock()

	select {
	case u.wake <- struct{}{}:
	default: // it will run anyway
	}
}

// returnToBalancers returns the nodes of machines that are drained, and will not be terminated by this run, to the load
// balancers of Services: people may uncordon them.
func (u *updater) returnToBalancers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range u.memory {
		if !m.drained || m.ending {
			continue
		}

		if err := drain.Include(ctx, u.client, m.nodeName); err != nil {
			u.notify("node %s stays out of load balancers until the next rolling update: %v", m.nodeName, err)
		}
	}
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
func (u *updater) reportBlockers(m rollout.Machine, blockers []drain.Blocker) {
	if len(blockers) == 0 {
		u.report.setBlocked(m.NodeName, "")
		return
	}

	text := drain.FormatBlockers(blockers, u.now())
	u.report.setBlocked(m.NodeName, text)
	u.report.tell(EventBlocked, m, fmt.Sprintf("node %s waits for %s", m.NodeName, text))
}
