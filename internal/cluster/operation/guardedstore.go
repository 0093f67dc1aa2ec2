// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"slices"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// GuardStore returns s with guarded writes: a write fails with an error that wraps [ErrLockLost] once the
// lock is lost. The lock is verified after the data that the write depends on was read, and the write itself
// is conditional, so it never overwrites data of a later holder.
func (l *Lease) GuardStore(s store.Store) store.Store { return guardedStore{Store: s, lease: l} }

// Fenced returns the store below a guarded store, for a conditional write of an object that is checked by its
// version alone: a later holder of the lock that depends on the object finds another version and stops. The lease
// is checked without a request. A store that is not guarded is returned as it is.
func Fenced(ctx context.Context, s store.Store) (store.Store, error) {
	g, ok := s.(guardedStore)
	if !ok {
		return s, nil
	}

	return g.Store, g.lease.EnsureHeld(ctx)
}

type guardedStore struct {
	store.Store
	lease *Lease
}

// Put creates the object, or replaces the version that exists while the lock is held.
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

// Create creates an object if the lock is held.
func (g guardedStore) Create(ctx context.Context, key string, body []byte) (string, error) {
	if err := g.lease.VerifyHeld(ctx); err != nil {
		return "", err
	}

	return g.Store.Create(ctx, key, body)
}

// Update replaces a version of an object if the lock is held.
func (g guardedStore) Update(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := g.lease.VerifyHeld(ctx); err != nil {
		return "", err
	}

	return g.Store.Update(ctx, key, body, etag)
}

// CreateAll creates objects if the lock is held. It is verified once: a conditional write that is late replaces
// nothing.
func (g guardedStore) CreateAll(ctx context.Context, objects []store.Object) ([]string, error) {
	if err := g.lease.VerifyHeld(ctx); err != nil {
		return nil, err
	}

	return store.CreateAll(ctx, g.Store, objects)
}

// DeleteAll deletes objects if the lock is held. It is verified before each request.
func (g guardedStore) DeleteAll(ctx context.Context, keys []string) error {
	for chunk := range slices.Chunk(keys, maxGuardedDeletions) {
		if err := g.lease.VerifyHeld(ctx); err != nil {
			return err
		}

		if err := store.DeleteAll(ctx, g.Store, chunk); err != nil {
			return err
		}
	}

	return nil
}

// DeleteAllThen deletes keys and then last if the lock is held. It is verified before each request except that
// for last.
func (g guardedStore) DeleteAllThen(ctx context.Context, keys []string, last string) error {
	if err := g.DeleteAll(ctx, keys); err != nil {
		return err
	}

	if len(keys) == 0 {
		return g.Delete(ctx, last)
	}

	if err := g.lease.EnsureHeld(ctx); err != nil {
		return err
	}

	return g.Store.Delete(ctx, last)
}

// maxGuardedDeletions is how many objects are deleted after the lock was verified: those of one request to S3.
const maxGuardedDeletions = 1000

// Delete deletes an object if the lock is held.
func (g guardedStore) Delete(ctx context.Context, key string) error {
	if err := g.lease.VerifyHeld(ctx); err != nil {
		return err
	}

	return g.Store.Delete(ctx, key)
}
