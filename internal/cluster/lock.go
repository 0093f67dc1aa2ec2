// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

const (
	// recordEndTimeout limits how long an interrupted operation tries to record its end.
	recordEndTimeout = 20 * time.Second
	// lockPollInterval is how often a lock is read while RunOperation waits for it.
	lockPollInterval = 2 * time.Second
)

// OperationRequest describes an operation that takes a cluster's lock.
type OperationRequest struct {
	// Store is the state store.
	Store store.Store
	// Cluster is the name of the cluster.
	Cluster string
	// Kind is the operation in one word, such as apply.
	Kind string
	// CheckReady is called while the lock is read; its error prevents that the lock is taken. Nil: always ready.
	CheckReady func(context.Context) error
	// RecordInBackground lets the operation read AWS before its record is written; see [operation.Coordinator].
	RecordInBackground bool
}

// LockedFunc does the work of an operation while it holds the lock. It writes to the state store through
// guarded, which refuses writes once the lock is lost.
type LockedFunc func(ctx context.Context, op *operation.Operation, guarded store.Store) error

// Coordinator returns the coordinator of the operations on one cluster.
func (env *Env) Coordinator(s store.Store, cluster string) operation.Coordinator {
	return operation.Coordinator{
		Store:         s,
		Cluster:       cluster,
		Now:           env.Now,
		LeaseDuration: env.Lease,
	}
}

// Initiator describes the caller in a lock and in the journal. kind is the operation in one word.
func (env *Env) Initiator(kind string) operation.Initiator {
	who := env.Operator
	who.Operation = kind

	return who
}

// RunOperation takes the cluster's lock, calls do as the only writer of the cluster, and records how it
// ended. The context of do ends when the lock is lost; the error then wraps [operation.ErrLockLost]. If
// somebody else holds the lock for longer than Env.LockTimeout, the error is an [operation.LockHeldError].
func (env *Env) RunOperation(ctx context.Context, req OperationRequest, do LockedFunc) error {
	d := env.Coordinator(req.Store, req.Cluster)
	d.CheckReady = req.CheckReady
	d.RecordInBackground = req.RecordInBackground
	op, err := env.acquireLock(ctx, d, req.Kind)
	if err != nil {
		return err
	}

	if p := op.PreviousHolder(); p != nil {
		env.Notifyf(
			"took the lock over from %s, whose lease ended at %s; its unfinished work is resumed",
			p,
			FormatTime(p.Expires),
		)
	}

	kept, stop := op.KeepRenewed(ctx)
	err = do(kept, op, op.GuardStore(req.Store))
	if cause := context.Cause(kept); errors.Is(cause, operation.ErrLockLost) &&
		!errors.Is(err, operation.ErrLockLost) {
		err = errors.Join(cause, err)
	}

	stop()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordEndTimeout)
	defer cancel()
	if endErr := op.Finish(ending, err); endErr != nil && !errors.Is(err, operation.ErrLockLost) {
		return errors.Join(err, endErr)
	}

	return err
}

// acquireLock takes the lock. It waits for it as long as Env.LockTimeout allows.
func (env *Env) acquireLock(
	ctx context.Context,
	d operation.Coordinator,
	kind string,
) (*operation.Operation, error) {
	until := env.Now().Add(env.LockTimeout)
	notified := false
	for {
		op, err := d.BeginOperation(ctx, env.Initiator(kind))
		held, isHeld := errors.AsType[operation.LockHeldError](err)
		if !isHeld {
			return op, err
		}

		left := until.Sub(env.Now())
		if left <= 0 {
			return nil, diag.WithHint(
				err,
				fmt.Sprintf(
					"wait, or set --lock-timeout 2m; if pid %d on that machine has ended: slipway unlock %s --yes",
					held.Holder.PID,
					d.Cluster,
				),
			)
		}

		if !notified {
			env.Notifyf("%s; waiting up to %s", err, left.Round(time.Second))
			notified = true
		}

		t := time.NewTimer(min(left, lockPollInterval))

		select {
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("wait for the lock: %w", ctx.Err())
		case <-t.C:
		}
	}
}

// FormatTime formats a time as messages show it: in UTC, to the second.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
