// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// gathering makes one call of many operations that AWS takes together. An operation waits until as many of its batch
// have come as the plan has, or until nobody came for a while: something that one of them needs has failed.
type gathering[T any] struct {
	// call carries out a batch and says for each item, in order, what came of it.
	call func(ctx context.Context, batch batchKey, items []T) []outcome

	mu     sync.Mutex
	expect map[batchKey]int
	open   map[batchKey]*gathered[T]
}

// batchKey says which operations are one call.
type batchKey struct {
	kind, parent string
}

// outcome of one item.
type outcome struct {
	made plan.Made
	err  error
}

// gathered is a batch that is not sent yet.
type gathered[T any] struct {
	items   []T
	answers []chan outcome
	timer   *time.Timer
}

// idle is how long a batch waits for an operation that the plan has and that does not come.
const idle = 500 * time.Millisecond

// begin tells how many operations of each batch will come.
func (g *gathering[T]) begin(expect map[batchKey]int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expect, g.open = expect, map[batchKey]*gathered[T]{}
}

// do adds item to its batch and returns what came of it.
func (g *gathering[T]) do(ctx context.Context, key batchKey, item T) (plan.Made, error) {
	answer := make(chan outcome, 1)
	g.join(ctx, key, item, answer)
	select {
	case o := <-answer:
		return o.made, o.err
	case <-ctx.Done():
	}
	if g.leave(key, answer) {
		return plan.Made{}, ctx.Err()
	}
	o := <-answer // it is on its way: what comes of it counts
	return o.made, o.err
}

func (g *gathering[T]) join(ctx context.Context, key batchKey, item T, answer chan outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = map[batchKey]*gathered[T]{}
	}
	b := g.open[key]
	if b == nil {
		b = &gathered[T]{}
		g.open[key] = b
		b.timer = time.AfterFunc(idle, func() { g.late(ctx, key, b) })
	}
	b.items, b.answers = append(b.items, item), append(b.answers, answer)
	b.timer.Reset(idle)
	if len(b.items) >= g.expect[key] {
		g.send(ctx, key, b)
	}
}

// send closes a batch and has it carried out. The caller holds mu.
func (g *gathering[T]) send(ctx context.Context, key batchKey, b *gathered[T]) {
	delete(g.open, key)
	g.expect[key] = max(0, g.expect[key]-len(b.items)) // what comes again comes alone
	b.timer.Stop()
	go func() {
		for i, o := range g.call(context.WithoutCancel(ctx), key, b.items) {
			b.answers[i] <- o
		}
	}()
}

// late sends a batch that is not complete.
func (g *gathering[T]) late(ctx context.Context, key batchKey, b *gathered[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[key] == b && len(b.items) > 0 {
		g.send(ctx, key, b)
	}
}

// leave takes an item out of a batch that is not sent yet.
func (g *gathering[T]) leave(key batchKey, answer chan outcome) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.open[key]
	if b == nil {
		return false
	}
	for i, a := range b.answers {
		if a == answer {
			b.items, b.answers = append(b.items[:i:i], b.items[i+1:]...), append(b.answers[:i:i], b.answers[i+1:]...)
			return true
		}
	}
	return false
}
