// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"sync"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// readOnceStore reads each object and each list once, so that what is shown of an object is what
// was hashed: somebody else may write to the store meanwhile.
type readOnceStore struct {
	store.Store

	mu      sync.Mutex
	objects map[string]onceRead[store.Object]
	lists   map[string]onceRead[[]string]
}

// onceRead is what was read.
type onceRead[T any] struct {
	value T
	err   error
}

func newReadOnceStore(s store.Store) *readOnceStore {
	return &readOnceStore{
		Store:   s,
		objects: map[string]onceRead[store.Object]{},
		lists:   map[string]onceRead[[]string]{},
	}
}

// Get returns an object as it was when it was read first.
func (s *readOnceStore) Get(ctx context.Context, key string) (store.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return readOnce(s.objects, key, func() (store.Object, error) { return s.Store.Get(ctx, key) })
}

// List returns the keys that there were when they were listed first.
func (s *readOnceStore) List(ctx context.Context, prefix string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return readOnce(s.lists, prefix, func() ([]string, error) { return s.Store.List(ctx, prefix) })
}

// readOnce returns what known has for a key, else what read returns.
func readOnce[T any](known map[string]onceRead[T], key string, read func() (T, error)) (T, error) {
	had, isKnown := known[key]
	if !isKnown {
		had.value, had.err = read()
		known[key] = had
	}

	return had.value, had.err
}
