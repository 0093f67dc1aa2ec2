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

// ErrLost says that somebody else has, or may have, the lock that we held. Who gets it stops: it may write no more.
var ErrLost = errors.New("the lock is lost")

// Lease is a lock that we hold. It may be used by several goroutines.
type Lease struct {
	desk     Desk
	previous *Holder

	writing sync.Mutex // held while the lock is written, which may take long

	mu      sync.Mutex
	lock    Lock
	etag    string
	expires time.Time // by our clock, with its monotonic reading
	lost    error
}

// Token is the lease's fencing token: higher than that of every earlier holder.
func (l *Lease) Token() int64 { return l.seen().Token }

// Previous is who held the lock and did not release it; nil if it was free.
func (l *Lease) Previous() *Holder { return l.previous }

// Err says, without asking the store, why we may not act any more; nil while we may.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err()
}

// err looks at both readings of the clock: the monotonic one stands still while a laptop sleeps, the other one can be set.
func (l *Lease) err() error {
	if l.lost != nil {
		return l.lost
	}
	now, end := l.desk.Now(), l.expires.Add(-margin(l.desk.lease()))
	if now.Before(end) && now.Round(0).Before(end.Round(0)) {
		return nil
	}
	return fmt.Errorf("%w: the lease on cluster %s ended at %s and was not renewed", ErrLost, l.desk.Cluster, stamp(l.expires))
}

// Ensure returns nil if we may go on. A lease that ran out while the process did not run, as on a laptop that slept, is
// renewed if nobody has taken it.
func (l *Lease) Ensure(ctx context.Context) error {
	if l.Err() == nil {
		return nil
	}
	if err := l.Renew(ctx); err != nil {
		return err
	}
	return l.Err()
}

// Renew makes the lease last from now. An error that wraps [ErrLost] is for good; after another one it may be tried
// again as long as the lease lasts.
func (l *Lease) Renew(ctx context.Context) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	now := l.desk.Now()
	holder := *l.seen().Holder
	holder.Expires = recorded(now.Add(l.desk.lease()))
	err := l.write(ctx, Lock{Version: lockVersion, Token: l.Token(), Holder: &holder})
	if err == nil {
		l.mu.Lock()
		l.expires = now.Add(l.desk.lease())
		l.mu.Unlock()
	}
	return err
}

// Release gives the lock back. That it is lost already is an error that wraps [ErrLost].
func (l *Lease) Release(ctx context.Context) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	err := l.write(ctx, Lock{Version: lockVersion, Token: l.Token()})
	if err == nil {
		l.mu.Lock()
		l.lost = fmt.Errorf("%w: it was released", ErrLost)
		l.mu.Unlock()
	}
	return err
}

// seen is the lock as we wrote it last, holder and all.
func (l *Lease) seen() Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lock
}

// write replaces the lock while it is ours. The condition on its version is what makes that sure.
func (l *Lease) write(ctx context.Context, next Lock) error {
	body, err := encode(next)
	if err != nil {
		return err
	}
	for range acquireTries {
		l.mu.Lock()
		etag, lost := l.etag, l.lost
		l.mu.Unlock()
		if lost != nil {
			return lost
		}
		if etag, err = l.desk.Store.Update(ctx, LockKey(l.desk.Cluster), body, etag); err == nil {
			l.note(next, etag)
			return nil
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			break
		}
		if err := l.reread(ctx, next); err != nil { // perhaps it was our own write, whose answer got lost
			return err
		}
	}
	return fmt.Errorf("renew or release the lock of cluster %s: %w", l.desk.Cluster, err)
}

// note keeps what was written. Who held it is kept when it is released, to know our own release by.
func (l *Lease) note(next Lock, etag string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next.Holder != nil {
		l.lock = next
	}
	l.etag = etag
}

// reread takes the lock's version from the store, if the lock is ours still.
func (l *Lease) reread(ctx context.Context, next Lock) error {
	now, etag, err := l.desk.read(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if next.Holder == nil && now.Holder == nil && now.Token == next.Token {
		l.etag = etag // free, as it is to be
		return nil
	}
	if !l.ours(now) {
		return l.lose(now)
	}
	l.etag = etag
	return nil
}

func (l *Lease) ours(now Lock) bool {
	return now.Token == l.lock.Token && now.Holder != nil && now.Holder.ID == l.lock.Holder.ID
}

// lose notes for good that the lock is another's.
func (l *Lease) lose(now Lock) error {
	if l.lost != nil {
		return l.lost
	}
	who := "somebody released it"
	switch {
	case now.Token == 0:
		who = "it was deleted"
	case now.Holder != nil:
		who = fmt.Sprintf("it is held by %s since %s", now.Holder, stamp(now.Holder.Since))
	case now.Token > l.lock.Token:
		who = "somebody else has held it since"
	}
	l.lost = diag.WithHint(fmt.Errorf("%w: %s", ErrLost, who), "look at what the other one did with: slipway history "+l.desk.Cluster+"; then run it again")
	return l.lost
}

// Check asks the store whether the lock is still ours. Whoever writes state calls it after reading what the write
// depends on, and before writing.
func (l *Lease) Check(ctx context.Context) error {
	if err := l.Ensure(ctx); err != nil {
		return err
	}
	now, _, err := l.desk.read(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ours(now) {
		return l.lose(now)
	}
	return l.err()
}

// Keep renews the lease in the background, and returns a context that ends once the lease is lost. stop ends both.
func (l *Lease) Keep(ctx context.Context) (kept context.Context, stop func()) {
	kept, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		beat := time.NewTicker(Heartbeat(l.desk.lease()))
		defer beat.Stop()
		for {
			select {
			case <-kept.Done():
				return
			case <-beat.C:
			}
			err := l.renewInTime(kept)
			if errors.Is(err, ErrLost) || err != nil && l.Err() != nil {
				if !errors.Is(err, ErrLost) {
					err = errors.Join(l.Err(), err)
				}
				cancel(err)
				return
			}
		}
	})
	return kept, func() { cancel(context.Canceled); wg.Wait() }
}

// renewInTime renews, and gives up in time for another try.
func (l *Lease) renewInTime(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Heartbeat(l.desk.lease()))
	defer cancel()
	return l.Renew(ctx)
}
