// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

const (
	// recordEndTimeout is how long an operation that was interrupted tries to write down its end.
	recordEndTimeout = 20 * time.Second
	// lockPollInterval is how often a lock that is waited for is looked at.
	lockPollInterval = 2 * time.Second
)

// addLockFlag adds --lock-timeout to a command that takes a cluster's lock.
func (a *app) addLockFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(
		&a.lockTimeout,
		"lock-timeout",
		0,
		"how long to wait for the cluster's lock, such as 2m",
	)
}

// operationsOf is where operations on a cluster begin.
func (a *app) operationsOf(s store.Store, cluster string) (operation.Coordinator, error) {
	d := operation.Coordinator{Store: s, Cluster: cluster, Now: a.Now}
	if v := a.Getenv("SLIPWAY_LOCK_LEASE"); v != "" {
		lease, err := time.ParseDuration(v)
		if err != nil || lease < time.Second || lease > time.Hour {
			return d, withHint(
				fmt.Errorf("SLIPWAY_LOCK_LEASE=%s is no lease", v),
				"give a time between 1s and 1h, or unset it for "+operation.DefaultLeaseDuration.String(),
			)
		}

		d.LeaseDuration = lease
	}

	return d, nil
}

// describeOperator says who runs this command.
func (a *app) describeOperator(kind string) operation.Initiator {
	user := a.flagOrEnv(a.Getenv("USER"), "LOGNAME")
	if user == "" {
		user = fmt.Sprint("uid-", os.Getuid())
	}

	host, err := a.Hostname()
	if err != nil {
		host = "unknown"
	}

	return operation.Initiator{
		Owner:     user + "@" + host,
		PID:       os.Getpid(),
		Operation: kind,
		Command:   "slipway " + strings.Join(a.Args, " "),
		Tool:      buildVersion().Version,
	}
}

// canConfirm says whether a change may be confirmed at all: else nothing is locked for it.
func (a *app) canConfirm() bool { return a.yes || isTerminal(a.Stdin) }

// lockedFunc is what an operation does under the lock. It writes to state through the store that it is given: that one refuses
// once the lock is lost.
type lockedFunc func(ctx context.Context, op *operation.Operation, guarded store.Store) error

// runOperation does work as the only writer of a cluster, and leaves a record of it. The context that work gets ends when the
// lock is lost.
func (a *app) runOperation(ctx context.Context, s store.Store, cluster, kind string, do lockedFunc) error {
	return a.runOperationIf(ctx, operationRequest{store: s, cluster: cluster, kind: kind}, do)
}

// operationRequest is how an operation begins. ready is asked before the lock is taken, while it is looked at; nil agrees. ahead
// lets it read before its record is written.
type operationRequest struct {
	store         store.Store
	cluster, kind string
	precheck      func(context.Context) error
	deferRecord   bool
}

// runOperationIf is [app.runOperation] where the lock is taken only if all is ready for it.
func (a *app) runOperationIf(ctx context.Context, o operationRequest, do lockedFunc) error {
	d, err := a.operationsOf(o.store, o.cluster)
	if err != nil {
		return err
	}

	d.CheckReady = o.precheck
	d.RecordInBackground = o.deferRecord
	op, err := a.acquireLock(ctx, d, o.kind)
	if err != nil {
		return err
	}

	if p := op.PreviousHolder(); p != nil {
		a.printMessage(
			"took the lock over from %s, whose lease ended at %s; what it left undone is taken up",
			p,
			formatTime(p.Expires),
		)
	}

	kept, stop := op.KeepRenewed(ctx)
	err = do(kept, op, op.GuardStore(o.store))
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

// acquireLock takes the lock, or waits for it as long as --lock-timeout says.
func (a *app) acquireLock(
	ctx context.Context,
	d operation.Coordinator,
	kind string,
) (*operation.Operation, error) {
	until := a.Now().Add(a.lockTimeout)
	said := false
	for {
		op, err := d.BeginOperation(ctx, a.describeOperator(kind))
		held, isHeld := errors.AsType[operation.LockHeldError](err)
		if !isHeld {
			return op, err
		}

		left := until.Sub(a.Now())
		if left <= 0 {
			return nil, withHint(
				err,
				fmt.Sprintf(
					"wait, or give --lock-timeout 2m; if pid %d on that machine is gone: slipway unlock %s --yes",
					held.Holder.PID,
					d.Cluster,
				),
			)
		}

		if !said {
			a.printMessage("%s; waiting up to %s", err, left.Round(time.Second))
			said = true
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

// formatTime renders a time as messages have it.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
