// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// StatePoller waits for many things with one Describe call a round. S is what is known of one thing.
type StatePoller[S any] struct {
	// describe returns the states of ids; a thing that is gone is left out.
	Describe func(ctx context.Context, ids []string) (map[string]S, error)

	mu      sync.Mutex
	waiters map[string][]chan pollResult[S]
	running bool
}

type pollResult[S any] struct {
	state S
	found bool
	err   error
}

// The pace of looking: quick at first, for what takes a moment, then as AWS's own waiters do at most.
const (
	minPollInterval = 100 * time.Millisecond
	maxPollInterval = 5 * time.Second
)

// WaitUntil looks at id until done says so. done gets found=false once AWS does not know id (any more).
func (b *StatePoller[S]) WaitUntil(
	ctx context.Context,
	id string,
	done func(state S, found bool) (bool, error),
) error {
	for {
		ch := b.addWaiter(ctx, id)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case s := <-ch:
			if s.err != nil {
				return s.err
			}

			if ok, err := done(s.state, s.found); ok || err != nil {
				return err
			}
		}
	}
}

// addWaiter asks for the next sighting of id, and sees to it that somebody looks.
func (b *StatePoller[S]) addWaiter(ctx context.Context, id string) chan pollResult[S] {
	ch := make(chan pollResult[S], 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiters == nil {
		b.waiters = map[string][]chan pollResult[S]{}
	}

	b.waiters[id] = append(b.waiters[id], ch)
	if !b.running {
		b.running = true
		go b.pollStates(context.WithoutCancel(ctx))
	}

	return ch
}

// pollStates runs as long as somebody waits.
func (b *StatePoller[S]) pollStates(ctx context.Context) {
	for delay := minPollInterval; ; delay = min(delay*3/2, maxPollInterval) {
		t := time.NewTimer(delay)
		<-t.C
		b.mu.Lock()
		waiters := b.waiters
		b.waiters = map[string][]chan pollResult[S]{}
		if len(waiters) == 0 {
			b.running = false
			b.mu.Unlock()
			return
		}

		b.mu.Unlock()
		states, err := b.Describe(ctx, slices.Sorted(maps.Keys(waiters)))

		for id, list := range waiters {
			s, found := states[id]
			for _, ch := range list {
				ch <- pollResult[S]{state: s, found: found, err: err}
			}
		}
	}
}
