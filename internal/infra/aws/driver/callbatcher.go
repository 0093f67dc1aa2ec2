// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// callBatcher combines operations that AWS accepts together into one call. An operation waits until
// its batch has as many items as the plan has operations for it, or until no item was added for
// [batchIdleTimeout]: then a resource that the missing operations depend on has failed.
type callBatcher[T any] struct {
	// call sends a batch and returns the result of each item, in the order of items.
	call func(ctx context.Context, batch batchKey, items []T) []itemResult

	mu       sync.Mutex
	expected map[batchKey]int // items that the plan still has for each batch
	pending  map[batchKey]*pendingBatch[T]
}

// batchKey names the operations that go into one call: those of one kind on one parent, such as a
// security group.
type batchKey struct {
	kind, parent string
}

// itemResult is the result of one item.
type itemResult struct {
	result plan.StepResult
	err    error
}

// pendingBatch is a batch that is not sent yet.
type pendingBatch[T any] struct {
	items   []T
	results []chan itemResult // one for each item
	timer   *time.Timer       // sends the batch although it is incomplete
}

// batchIdleTimeout is how long a batch waits for its next item.
const batchIdleTimeout = 500 * time.Millisecond

// expectItems sets how many items each batch will have.
func (g *callBatcher[T]) expectItems(expect map[batchKey]int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expected = expect
	g.pending = map[batchKey]*pendingBatch[T]{}
}

// submit adds item to its batch and returns its result. If ctx is cancelled before the batch is
// sent, item is withdrawn.
func (g *callBatcher[T]) submit(ctx context.Context, key batchKey, item T) (plan.StepResult, error) {
	result := make(chan itemResult, 1)
	g.enqueue(ctx, key, item, result)
	select {
	case r := <-result:
		return r.result, r.err
	case <-ctx.Done():
	}

	if g.withdrawItem(key, result) {
		return plan.StepResult{}, ctx.Err()
	}

	r := <-result // the batch was sent: its result counts

	return r.result, r.err
}

// enqueue adds item to its batch, and sends the batch if it is complete.
func (g *callBatcher[T]) enqueue(ctx context.Context, key batchKey, item T, result chan itemResult) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending == nil {
		g.pending = map[batchKey]*pendingBatch[T]{}
	}

	b := g.pending[key]
	if b == nil {
		b = &pendingBatch[T]{}
		g.pending[key] = b
		b.timer = time.AfterFunc(batchIdleTimeout, func() { g.sendIncomplete(ctx, key, b) })
	}

	b.items = append(b.items, item)
	b.results = append(b.results, result)
	b.timer.Reset(batchIdleTimeout)
	if len(b.items) >= g.expected[key] {
		g.sendBatch(ctx, key, b)
	}
}

// sendBatch closes a batch and sends it. The caller holds mu.
func (g *callBatcher[T]) sendBatch(ctx context.Context, key batchKey, b *pendingBatch[T]) {
	delete(g.pending, key)
	g.expected[key] = max(0, g.expected[key]-len(b.items)) // an item that is submitted again is sent alone
	b.timer.Stop()
	go g.deliverResults(context.WithoutCancel(ctx), key, b)
}

// deliverResults sends a batch and gives each of its callers a result, also if call returns too
// few.
func (g *callBatcher[T]) deliverResults(ctx context.Context, key batchKey, b *pendingBatch[T]) {
	outcomes := g.call(ctx, key, b.items)
	for i, result := range b.results {
		if i < len(outcomes) {
			result <- outcomes[i]
			continue
		}

		err := fmt.Errorf("a call for %d items of %s returned %d results", len(b.items), key.kind, len(outcomes))
		result <- itemResult{err: err}
	}
}

// sendIncomplete sends a batch that lacks items.
func (g *callBatcher[T]) sendIncomplete(ctx context.Context, key batchKey, b *pendingBatch[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending[key] == b && len(b.items) > 0 {
		g.sendBatch(ctx, key, b)
	}
}

// withdrawItem removes the item that waits for result from its batch. It returns false if the batch
// was sent already.
func (g *callBatcher[T]) withdrawItem(key batchKey, result chan itemResult) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.pending[key]
	if b == nil {
		return false
	}

	i := slices.Index(b.results, result)
	if i < 0 {
		return false
	}

	b.items = slices.Delete(slices.Clone(b.items), i, i+1)
	b.results = slices.Delete(slices.Clone(b.results), i, i+1)

	return true
}
