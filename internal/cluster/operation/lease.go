// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// ErrLockLost says that somebody else has, or may have, the lock that we held. Who gets it stops: it may write no more.
var ErrLockLost = errors.New("the lock is lost")

// Lease is a lock that we hold. It may be used by several goroutines.
type Lease struct {
	coordinator    Coordinator
	previousHolder *Holder

	writeMu sync.Mutex // held while the lock is written, which may take long

	mu      sync.Mutex
	held    Lock
	etag    string
	expires time.Time // by our clock, with its monotonic reading
	lostErr error
}

// Token is the lease's fencing token: higher than that of every earlier holder.
func (l *Lease) Token() int64 { return l.lastWritten().Token }

// PreviousHolder is who held the lock and did not release it; nil if it was free.
func (l *Lease) PreviousHolder() *Holder { return l.previousHolder }

// Err says, without asking the store, why we may not act any more; nil while we may.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expiryError()
}

// expiryError looks at both readings of the clock: the monotonic one stands still while a laptop sleeps, the other one can be set.
func (l *Lease) expiryError() error {
	if l.lostErr != nil {
		return l.lostErr
	}

	now := l.coordinator.Now()
	end := l.expires.Add(-expiryMargin(l.coordinator.leaseDuration()))
	if now.Before(end) && now.Round(0).Before(end.Round(0)) {
		return nil
	}

	return fmt.Errorf(
		"%w: the lease on cluster %s ended at %s and was not renewed",
		ErrLockLost,
		l.coordinator.Cluster,
		formatTime(l.expires),
	)
}

// EnsureHeld returns nil if we may go on. A lease that ran out while the process did not run, as on a laptop that slept, is
// renewed if nobody has taken it.
func (l *Lease) EnsureHeld(ctx context.Context) error {
	if l.Err() == nil {
		return nil
	}

	if err := l.Renew(ctx); err != nil {
		return err
	}

	return l.Err()
}

// Renew makes the lease last from now. An error that wraps [ErrLockLost] is for good; after another one it may be tried
// again as long as the lease lasts.
func (l *Lease) Renew(ctx context.Context) error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	now := l.coordinator.Now()
	holder := *l.lastWritten().Holder
	holder.Expires = truncateTime(now.Add(l.coordinator.leaseDuration()))
	err := l.updateLock(ctx, Lock{Version: lockVersion, Token: l.Token(), Holder: &holder})
	if err == nil {
		l.mu.Lock()
		l.expires = now.Add(l.coordinator.leaseDuration())
		l.mu.Unlock()
	}

	return err
}

// Release gives the lock back. That it is lost already is an error that wraps [ErrLockLost].
func (l *Lease) Release(ctx context.Context) error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	err := l.updateLock(ctx, Lock{Version: lockVersion, Token: l.Token()})
	if err == nil {
		l.mu.Lock()
		l.lostErr = fmt.Errorf("%w: it was released", ErrLockLost)
		l.mu.Unlock()
	}

	return err
}

// lastWritten is the lock as we wrote it last, holder and all.
func (l *Lease) lastWritten() Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// updateLock replaces the lock while it is ours. The condition on its version is what makes that sure.
func (l *Lease) updateLock(ctx context.Context, next Lock) error {
	body, err := encodeDocument(next)
	if err != nil {
		return err
	}

	for range maxAcquireAttempts {
		l.mu.Lock()
		etag := l.etag
		lost := l.lostErr
		l.mu.Unlock()
		if lost != nil {
			return lost
		}

		if etag, err = l.coordinator.Store.Update(ctx, LockKey(l.coordinator.Cluster), body, etag); err == nil {
			l.noteWritten(next, etag)
			return nil
		}

		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			break
		}

		if err := l.refreshETag(ctx, next); err != nil { // perhaps it was our own write, whose answer got lost
			return err
		}
	}

	return fmt.Errorf("renew or release the lock of cluster %s: %w", l.coordinator.Cluster, err)
}

// noteWritten keeps what was written. Who held it is kept when it is released, to know our own release by.
func (l *Lease) noteWritten(next Lock, etag string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next.Holder != nil {
		l.held = next
	}

	l.etag = etag
}

// refreshETag takes the lock's version from the store, if the lock is ours still.
func (l *Lease) refreshETag(ctx context.Context, next Lock) error {
	now, etag, err := l.coordinator.readLock(ctx)
	if err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if next.Holder == nil && now.Holder == nil && now.Token == next.Token {
		l.etag = etag // free, as it is to be
		return nil
	}

	if !l.isHeldByUs(now) {
		return l.markLost(now)
	}

	l.etag = etag

	return nil
}

func (l *Lease) isHeldByUs(now Lock) bool {
	return now.Token == l.held.Token && now.Holder != nil && now.Holder.ID == l.held.Holder.ID
}

// markLost notes for good that the lock is another's.
func (l *Lease) markLost(now Lock) error {
	if l.lostErr != nil {
		return l.lostErr
	}

	who := "somebody released it"
	switch {
	case now.Token == 0:
		who = "it was deleted"
	case now.Holder != nil:
		who = fmt.Sprintf("it is held by %s since %s", now.Holder, formatTime(now.Holder.Since))
	case now.Token > l.held.Token:
		who = "somebody else has held it since"
	}

	l.lostErr = diag.WithHint(
		fmt.Errorf("%w: %s", ErrLockLost, who),
		"look at what the other one did with: slipway history "+l.coordinator.Cluster+"; then run it again",
	)

	return l.lostErr
}

// VerifyHeld asks the store whether the lock is still ours. Whoever writes state calls it after reading what the write
// depends on, and before writing.
func (l *Lease) VerifyHeld(ctx context.Context) error {
	if err := l.EnsureHeld(ctx); err != nil {
		return err
	}

	now, _, err := l.coordinator.readLock(ctx)
	if err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isHeldByUs(now) {
		return l.markLost(now)
	}

	return l.expiryError()
}

// KeepRenewed renews the lease in the background, and returns a context that ends once the lease is lost. stop ends both.
func (l *Lease) KeepRenewed(ctx context.Context) (kept context.Context, stop func()) {
	kept, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		beat := time.NewTicker(RenewInterval(l.coordinator.leaseDuration()))
		defer beat.Stop()
		for {
			select {
			case <-kept.Done():
				return
			case <-beat.C:
			}

			err := l.renewWithTimeout(kept)
			if errors.Is(err, ErrLockLost) || err != nil && l.Err() != nil {
				if !errors.Is(err, ErrLockLost) {
					err = errors.Join(l.Err(), err)
				}

				cancel(err)
				return
			}
		}
	})

	return kept, func() { cancel(context.Canceled); wg.Wait() }
}

// renewWithTimeout renews, and gives up in time for another try.
func (l *Lease) renewWithTimeout(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, RenewInterval(l.coordinator.leaseDuration()))
	defer cancel()
	return l.Renew(ctx)
}
