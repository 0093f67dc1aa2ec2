// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// callBatcher makes one call of many operations that AWS takes together. An operation waits until as many of its batch
// have come as the plan has, or until nobody came for a while: something that one of them needs has failed.
type callBatcher[T any] struct {
	// call carries out a batch and says for each item, in order, what came of it.
	call func(ctx context.Context, batch batchKey, items []T) []itemResult

	mu       sync.Mutex
	expected map[batchKey]int
	pending  map[batchKey]*pendingBatch[T]
}

// batchKey says which operations are one call.
type batchKey struct {
	kind, parent string
}

// itemResult of one item.
type itemResult struct {
	made plan.StepResult
	err  error
}

// pendingBatch is a batch that is not sent yet.
type pendingBatch[T any] struct {
	items   []T
	results []chan itemResult
	timer   *time.Timer
}

// batchIdleTimeout is how long a batch waits for an operation that the plan has and that does not come.
const batchIdleTimeout = 500 * time.Millisecond

// expectItems tells how many operations of each batch will come.
func (g *callBatcher[T]) expectItems(expect map[batchKey]int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expected = expect
	g.pending = map[batchKey]*pendingBatch[T]{}
}

// submit adds item to its batch and returns what came of it.
func (g *callBatcher[T]) submit(ctx context.Context, key batchKey, item T) (plan.StepResult, error) {
	answer := make(chan itemResult, 1)
	g.enqueue(ctx, key, item, answer)
	select {
	case o := <-answer:
		return o.made, o.err
	case <-ctx.Done():
	}

	if g.withdrawItem(key, answer) {
		return plan.StepResult{}, ctx.Err()
	}

	o := <-answer // it is on its way: what comes of it counts

	return o.made, o.err
}

func (g *callBatcher[T]) enqueue(ctx context.Context, key batchKey, item T, answer chan itemResult) {
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

	b.items, b.results = append(b.items, item), append(b.results, answer)
	b.timer.Reset(batchIdleTimeout)
	if len(b.items) >= g.expected[key] {
		g.sendBatch(ctx, key, b)
	}
}

// sendBatch closes a batch and has it carried out. The caller holds mu.
func (g *callBatcher[T]) sendBatch(ctx context.Context, key batchKey, b *pendingBatch[T]) {
	delete(g.pending, key)
	g.expected[key] = max(0, g.expected[key]-len(b.items)) // what comes again comes alone
	b.timer.Stop()
	go func() {
		for i, o := range g.call(context.WithoutCancel(ctx), key, b.items) {
			b.results[i] <- o
		}
	}()
}

// sendIncomplete sends a batch that is not complete.
func (g *callBatcher[T]) sendIncomplete(ctx context.Context, key batchKey, b *pendingBatch[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending[key] == b && len(b.items) > 0 {
		g.sendBatch(ctx, key, b)
	}
}

// withdrawItem takes an item out of a batch that is not sent yet.
func (g *callBatcher[T]) withdrawItem(key batchKey, answer chan itemResult) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.pending[key]
	if b == nil {
		return false
	}

	for i, a := range b.results {
		if a == answer {
			b.items, b.results = append(
				b.items[:i:i],
				b.items[i+1:]...), append(
				b.results[:i:i],
				b.results[i+1:]...)

			return true
		}
	}

	return false
}
