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
	// endTime is how long an operation that was interrupted tries to write down its end.
	endTime = 20 * time.Second
	// lockPoll is how often a lock that is waited for is looked at.
	lockPoll = 2 * time.Second
)

// lockFlag adds --lock-timeout to a command that takes a cluster's lock.
func (a *app) lockFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&a.lockTimeout, "lock-timeout", 0, "how long to wait for the cluster's lock, such as 2m")
}

// desk is where operations on a cluster begin.
func (a *app) desk(s store.Store, cluster string) (operation.Desk, error) {
	d := operation.Desk{Store: s, Cluster: cluster, Now: a.Now}
	if v := a.Getenv("SLIPWAY_LOCK_LEASE"); v != "" {
		lease, err := time.ParseDuration(v)
		if err != nil || lease < time.Second || lease > time.Hour {
			return d, withHint(fmt.Errorf("SLIPWAY_LOCK_LEASE=%s is no lease", v), "give a time between 1s and 1h, or unset it for "+operation.DefaultLease.String())
		}
		d.Lease = lease
	}
	return d, nil
}

// who says who runs this command.
func (a *app) who(kind string) operation.Who {
	user := a.flagOr(a.Getenv("USER"), "LOGNAME")
	if user == "" {
		user = fmt.Sprint("uid-", os.Getuid())
	}
	host, err := a.Hostname()
	if err != nil {
		host = "unknown"
	}
	return operation.Who{
		Owner: user + "@" + host, PID: os.Getpid(), Operation: kind,
		Command: "slipway " + strings.Join(a.Args, " "), Tool: buildVersion().Version,
	}
}

// canAsk says whether a change may be confirmed at all: else nothing is locked for it.
func (a *app) canAsk() bool { return a.yes || isTerminal(a.Stdin) }

// work is what an operation does under the lock. It writes to state through the store that it is given: that one refuses
// once the lock is lost.
type work func(ctx context.Context, op *operation.Op, guarded store.Store) error

// operate does work as the only writer of a cluster, and leaves a record of it. The context that work gets ends when the
// lock is lost.
func (a *app) operate(ctx context.Context, s store.Store, cluster, kind string, do work) error {
	return a.operateIf(ctx, opening{store: s, cluster: cluster, kind: kind}, do)
}

// opening is how an operation begins. ready is asked before the lock is taken, while it is looked at; nil agrees. ahead
// lets it read before its record is written.
type opening struct {
	store         store.Store
	cluster, kind string
	ready         func(context.Context) error
	ahead         bool
}

// operateIf is [app.operate] where the lock is taken only if all is ready for it.
func (a *app) operateIf(ctx context.Context, o opening, do work) error {
	d, err := a.desk(o.store, o.cluster)
	if err != nil {
		return err
	}
	d.Ready, d.Ahead = o.ready, o.ahead
	op, err := a.begin(ctx, d, o.kind)
	if err != nil {
		return err
	}
	if p := op.Previous(); p != nil {
		a.say("took the lock over from %s, whose lease ended at %s; what it left undone is taken up", p, utc(p.Expires))
	}
	kept, stop := op.Keep(ctx)
	err = do(kept, op, op.Guard(o.store))
	if cause := context.Cause(kept); errors.Is(cause, operation.ErrLost) && !errors.Is(err, operation.ErrLost) {
		err = errors.Join(cause, err)
	}
	stop()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if endErr := op.End(ending, err); endErr != nil && !errors.Is(err, operation.ErrLost) {
		return errors.Join(err, endErr)
	}
	return err
}

// begin takes the lock, or waits for it as long as --lock-timeout says.
func (a *app) begin(ctx context.Context, d operation.Desk, kind string) (*operation.Op, error) {
	until := a.Now().Add(a.lockTimeout)
	said := false
	for {
		op, err := d.Begin(ctx, a.who(kind))
		held, isHeld := errors.AsType[operation.HeldError](err)
		if !isHeld {
			return op, err
		}
		left := until.Sub(a.Now())
		if left <= 0 {
			return nil, withHint(err, fmt.Sprintf("wait, or give --lock-timeout 2m; if pid %d on that machine is gone: slipway unlock %s --yes", held.Holder.PID, d.Cluster))
		}
		if !said {
			a.say("%s; waiting up to %s", err, left.Round(time.Second))
			said = true
		}
		t := time.NewTimer(min(left, lockPoll))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("wait for the lock: %w", ctx.Err())
		case <-t.C:
		}
	}
}

// utc renders a time as messages have it.
func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
