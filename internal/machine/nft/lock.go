// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"sync"
)

// lock is a mutex that can be waited for with a context. The zero value is ready to use.
type lock struct {
	once sync.Once
	held chan struct{}
}

// acquire waits for the lock. It returns the context's error if that ends before.
func (l *lock) acquire(ctx context.Context) error {
	l.once.Do(func() { l.held = make(chan struct{}, 1) })
	select {
	case l.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// release lets the next one acquire the lock.
func (l *lock) release() { <-l.held }
