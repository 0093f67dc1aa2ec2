// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
)

// Machines of the control plane take turns to restart components for a new node document, by a lock in a Lease. An update
// has this lock while it replaces one of them.

const (
	// renewInterval is the time between two renewals of the lock.
	renewInterval = follow.HoldTime / 4
	// releaseTimeout limits the release of the lock at the end of an update.
	releaseTimeout = 5 * time.Second
	// maxClockDifference is how far the operator's clock may differ from the machines'. AWS refuses requests with a
	// greater difference.
	maxClockDifference = 5 * time.Minute
)

// controlPlaneTurn takes and releases the lock for an update.
type controlPlaneTurn struct {
	client kubernetes.Interface
	now    func() time.Time
	// renewed is when the update had the lock last; zero: it does not have it.
	renewed time.Time
}

// isHeld reports whether the update has the lock.
func (t *controlPlaneTurn) isHeld() bool { return !t.renewed.IsZero() }

// hold takes the lock or renews it. The text is why the update does not have it; empty if it does.
func (t *controlPlaneTurn) hold(ctx context.Context) string {
	now := t.now()
	if t.isHeld() && now.Sub(t.renewed) < renewInterval {
		return ""
	}

	reason := ""
	err := t.change(ctx, func(l follow.Lock) follow.Lock {
		var turn follow.Turn
		claim := follow.Claim{Machine: follow.RollingUpdate}
		if turn, reason = l.Decide(claim, now); turn != follow.TurnTake {
			return l
		}

		return l.Take(claim, now)
	})
	if err != nil {
		return "cannot take the control plane's update lock: " + err.Error()
	}

	t.renewed = time.Time{}
	if reason == "" {
		t.renewed = now
	}

	return reason
}

// release ends the turn, if the update has it.
func (t *controlPlaneTurn) release(ctx context.Context) error {
	if !t.isHeld() {
		return nil
	}

	err := t.change(ctx, func(l follow.Lock) follow.Lock { return l.Drop(follow.RollingUpdate) })
	if err == nil {
		t.renewed = time.Time{}
	}

	return err
}

// change changes the lock. Kubernetes refuses the change if somebody else has changed the Lease meanwhile.
func (t *controlPlaneTurn) change(ctx context.Context, how func(follow.Lock) follow.Lock) error {
	leases := t.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := leases.Get(ctx, follow.ControlPlaneLease, metav1.GetOptions{})
	isNew := apierrors.IsNotFound(err)
	if err != nil && !isNew {
		return fmt.Errorf("read lease %s: %w", follow.ControlPlaneLease, err)
	}

	if isNew {
		lease = &coordinationv1.Lease{}
		lease.Namespace = metav1.NamespaceSystem
		lease.Name = follow.ControlPlaneLease
	}

	before := parseLock(lease)
	after := how(before)
	if after.Holder == before.Holder && after.Until.Equal(before.Until) {
		return nil
	}

	if err := t.setLock(lease, after); err != nil {
		return err
	}

	if isNew {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}

	if err != nil {
		return fmt.Errorf("change lease %s: %w", follow.ControlPlaneLease, err)
	}

	return nil
}

// setLock writes a lock into its Lease.
func (t *controlPlaneTurn) setLock(lease *coordinationv1.Lease, lock follow.Lock) error {
	body, err := json.Marshal(lock)
	if err != nil {
		return fmt.Errorf("encode the update lock: %w", err)
	}

	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}

	lease.Annotations[follow.LockAnnotation] = string(body)
	seconds := int32(follow.HoldTime.Seconds())
	renewed := metav1.NewMicroTime(t.now())
	lease.Spec.HolderIdentity = &lock.Holder
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.RenewTime = &renewed

	return nil
}

// parseLock returns the lock in a Lease. Nobody has a lock that is damaged.
func parseLock(lease *coordinationv1.Lease) follow.Lock {
	var lock follow.Lock
	if json.Unmarshal([]byte(lease.Annotations[follow.LockAnnotation]), &lock) != nil {
		return follow.Lock{}
	}

	return lock
}

// findChanging returns the machine that has the lock and uses it. A machine that reports that it is applying its document
// has the lock a while longer, because the clocks may differ.
func findChanging(lock follow.Lock, o rollout.Observation) string {
	now := o.Now
	for _, m := range o.Machines {
		if m.ID == lock.Holder && m.IsApplying {
			now = now.Add(-maxClockDifference)
		}
	}

	if !lock.IsHeldByOther(follow.RollingUpdate, now) {
		return ""
	}

	return lock.Holder
}

// takeTurn takes the lock for a decision that replaces a machine of the control plane. Without the lock, the result is to
// wait. It releases the lock when it is not needed any more.
func (u *updater) takeTurn(ctx context.Context, o rollout.Observation, d rollout.Decision) rollout.Decision {
	if !rollout.NeedsTurn(o, d, u.turn.isHeld()) {
		_ = u.turn.release(ctx) // otherwise the next decision repeats it

		return d
	}

	if reason := u.turn.hold(ctx); reason != "" {
		return rollout.Decision{Waiting: []string{reason}, Failed: d.Failed}
	}

	return d
}

// endTurn releases the lock at the end of an update, also if it is interrupted.
func (u *updater) endTurn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := u.turn.release(ctx); err != nil {
		u.notify("the control plane's update lock ends by itself after %s, because it cannot be released: %v",
			follow.HoldTime, err)
	}
}
