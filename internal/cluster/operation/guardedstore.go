// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// GuardStore returns s with every write guarded: it is refused once the lock is not ours any more, with an error that wraps
// [ErrLockLost]. The lock is looked at after what the write depends on was read, and the write itself is conditional, so
// what a later holder has written is never overwritten.
func (l *Lease) GuardStore(s store.Store) store.Store { return guardedStore{Store: s, lease: l} }

type guardedStore struct {
	store.Store
	lease *Lease
}

// Put replaces the version that was there when the lock was ours.
func (g guardedStore) Put(ctx context.Context, key string, body []byte) (string, error) {
	o, err := g.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return g.Create(ctx, key, body)
	}

	if err != nil {
		return "", err
	}

	return g.Update(ctx, key, body, o.ETag)
}

// Create writes a new object while the lock is ours.
func (g guardedStore) Create(ctx context.Context, key string, body []byte) (string, error) {
	if err := g.lease.VerifyHeld(ctx); err != nil {
		return "", err
	}

	return g.Store.Create(ctx, key, body)
}

// Update replaces a version while the lock is ours.
func (g guardedStore) Update(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := g.lease.VerifyHeld(ctx); err != nil {
		return "", err
	}

	return g.Store.Update(ctx, key, body, etag)
}

// Delete removes an object while the lock is ours.
func (g guardedStore) Delete(ctx context.Context, key string) error {
	if err := g.lease.VerifyHeld(ctx); err != nil {
		return err
	}

	return g.Store.Delete(ctx, key)
}
