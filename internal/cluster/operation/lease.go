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

// ErrLockLost is wrapped by the errors of a lease that another operation has, or may have, taken. The
// operation must stop and must not write any more.
var ErrLockLost = errors.New("the lock is lost")

// Lease is a lock that this run holds. It may be used concurrently.
type Lease struct {
	coordinator    Coordinator
	previousHolder *Holder
	writing        turn // to write the lock to the store

	mu      sync.Mutex // guards the fields below; never held during network I/O
	held    Lock       // as written last with a holder
	etag    string
	expires time.Time // by the local clock, with its monotonic reading
	lostErr error     // why the lease is lost for good
}

func newLease(d Coordinator, held Lock, etag string, previous *Holder) *Lease {
	return &Lease{coordinator: d, held: held, etag: etag, previousHolder: previous, writing: newTurn()}
}

// turn lets one goroutine at a time write to the store. Unlike waiting for a mutex, waiting for it ends with
// the context.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) pass() { <-t }

// Token returns the lease's fencing token. It is higher than that of every earlier holder.
func (l *Lease) Token() int64 { return l.lastWritten().Token }

// PreviousHolder returns the holder that did not release the lock before this one; nil if the lock was free.
func (l *Lease) PreviousHolder() *Holder { return l.previousHolder }

// Err returns, without reading the store, why the lease cannot be used any more; nil while it can. The error
// wraps [ErrLockLost].
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expiryError()
}

// expiryError compares both readings of the clock: the monotonic one stops while a laptop sleeps, the wall
// clock can be set. The caller holds mu.
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
		"%w: the lease on cluster %s expired at %s and was not renewed",
		ErrLockLost,
		l.coordinator.Cluster,
		formatTime(l.expires),
	)
}

// EnsureHeld returns nil if the lease can be used. It renews a lease that expired while the process was
// suspended, as on a sleeping laptop, unless another operation has taken the lock.
func (l *Lease) EnsureHeld(ctx context.Context) error {
	if l.Err() == nil {
		return nil
	}

	if err := l.Renew(ctx); err != nil {
		return err
	}

	return l.Err()
}

// Renew extends the lease to its full duration from now. An error that wraps [ErrLockLost] is permanent;
// after another error it can be called again until the lease expires.
func (l *Lease) Renew(ctx context.Context) error {
	if err := l.writing.take(ctx); err != nil {
		return fmt.Errorf("renew the lock of cluster %s: %w", l.coordinator.Cluster, err)
	}

	defer l.writing.pass()
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

// Release releases the lock. If the lock is already lost, the error wraps [ErrLockLost].
func (l *Lease) Release(ctx context.Context) error {
	if err := l.writing.take(ctx); err != nil {
		return fmt.Errorf("release the lock of cluster %s: %w", l.coordinator.Cluster, err)
	}

	defer l.writing.pass()
	err := l.updateLock(ctx, Lock{Version: lockVersion, Token: l.Token()})
	if err == nil {
		l.mu.Lock()
		l.lostErr = fmt.Errorf("%w: it was released", ErrLockLost)
		l.mu.Unlock()
	}

	return err
}

// lastWritten returns the lock as this run wrote it last with a holder.
func (l *Lease) lastWritten() Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// updateLock replaces the lock. The write is conditional on the version that this run wrote last.
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

		etag, err = l.coordinator.Store.Update(ctx, LockKey(l.coordinator.Cluster), body, etag)
		if err == nil {
			l.noteWritten(next, etag)
			return nil
		}

		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			break
		}

		// perhaps this run's own write, whose response was lost
		if err := l.refreshETag(ctx, next); err != nil {
			return err
		}
	}

	return fmt.Errorf("renew or release the lock of cluster %s: %w", l.coordinator.Cluster, err)
}

// noteWritten remembers the written lock. After a release it keeps the holder, to recognize this run's own
// release.
func (l *Lease) noteWritten(next Lock, etag string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next.Holder != nil {
		l.held = next
	}

	l.etag = etag
}

// refreshETag reads the lock's version from the store, if this run still holds the lock.
func (l *Lease) refreshETag(ctx context.Context, next Lock) error {
	now, etag, err := l.coordinator.readLock(ctx)
	if err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if next.Holder == nil && now.Holder == nil && now.Token == next.Token {
		l.etag = etag // already released
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

// markLost remembers that the lock is lost and returns the reason. The caller holds mu.
func (l *Lease) markLost(now Lock) error {
	if l.lostErr != nil {
		return l.lostErr
	}

	reason := "it was released by another process"
	switch {
	case now.Token == 0:
		reason = "it was deleted"
	case now.Holder != nil:
		reason = fmt.Sprintf("it is held by %s since %s", now.Holder, formatTime(now.Holder.Since))
	case now.Token > l.held.Token:
		reason = "another operation has held it since"
	}

	l.lostErr = diag.WithHint(
		fmt.Errorf("%w: %s", ErrLockLost, reason),
		"see what the other operation did with: slipway history "+l.coordinator.Cluster+"; then rerun",
	)

	return l.lostErr
}

// VerifyHeld reads the lock from the store and returns an error that wraps [ErrLockLost] if this run does not
// hold it any more. It must be called before each write of state, after reading the data that the write
// depends on.
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

// KeepRenewed renews the lease in the background. It returns a context that is cancelled when the lease is
// lost, with the reason as its cause. stop ends both and waits for the background goroutine.
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

// renewWithTimeout renews the lease with a timeout that leaves time for another attempt.
func (l *Lease) renewWithTimeout(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, RenewInterval(l.coordinator.leaseDuration()))
	defer cancel()
	return l.Renew(ctx)
}
