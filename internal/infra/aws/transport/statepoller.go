// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/sleep"
)

// StatePoller waits for the states of many resources with one Describe call per round. S is the
// state of one resource. The zero value with Describe is ready to use, and its methods may be
// called concurrently.
type StatePoller[S any] struct {
	// Describe returns the states of the resources with ids, which are [MaxDescribedIDs] at most. It leaves
	// out resources that AWS does not know. Its error ends all waits of the round. It is set once, before
	// the first wait.
	Describe func(ctx context.Context, ids []string) (map[string]S, error)

	mu      sync.Mutex
	waiters map[string][]chan pollResult[S] // the waits of the next round, by id
	active  int                             // calls of WaitUntil that have not returned
	stop    context.CancelFunc              // ends the polling; nil while nothing polls
}

// pollResult is what one round found out about one resource.
type pollResult[S any] struct {
	state S
	found bool
	err   error
}

// The first and the longest pause between two rounds. The first is short because some states change
// within a moment; the longest is that of the SDK's own waiters.
const (
	minPollInterval = 100 * time.Millisecond
	maxPollInterval = 5 * time.Second
)

// MaxDescribedIDs is how many ids one Describe call of a [StatePoller] has. Amazon EC2 Auto Scaling takes 100 names of
// groups, Amazon EC2 200 filter values. See docs/aws-facts.md.
const MaxDescribedIDs = 100

// WaitUntil polls the state of id until done returns true or an error, which it returns. done gets
// found=false if AWS does not know id. WaitUntil also returns errors of Describe and of ctx.
func (p *StatePoller[S]) WaitUntil(
	ctx context.Context,
	id string,
	done func(state S, found bool) (bool, error),
) error {
	p.startPolling(ctx)
	defer p.stopPolling()

	for {
		result := p.addWaiter(id)
		select {
		case <-ctx.Done():
			p.removeWaiter(id, result)
			return ctx.Err()
		case r := <-result:
			if r.err != nil {
				return r.err
			}

			if ok, err := done(r.state, r.found); ok || err != nil {
				return err
			}
		}
	}
}

// startPolling counts a wait, and starts the polling with the first one. The polling outlives the
// cancellation of ctx, because other waits may share it.
func (p *StatePoller[S]) startPolling(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active++
	if p.stop != nil {
		return
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = cancel
	go func() {
		defer cancel()
		p.pollStates(ctx)
	}()
}

// stopPolling uncounts a wait, and ends the polling with the last one.
func (p *StatePoller[S]) stopPolling() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
	if p.active == 0 {
		p.stop()
		p.stop = nil
	}
}

// addWaiter returns a channel that receives the result of the next round for id.
func (p *StatePoller[S]) addWaiter(id string) chan pollResult[S] {
	result := make(chan pollResult[S], 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiters == nil {
		p.waiters = map[string][]chan pollResult[S]{}
	}

	p.waiters[id] = append(p.waiters[id], result)

	return result
}

// removeWaiter takes a wait that was cancelled out of the next round. A round that runs already has taken its waits.
func (p *StatePoller[S]) removeWaiter(id string, result chan pollResult[S]) {
	p.mu.Lock()
	defer p.mu.Unlock()

	left := slices.DeleteFunc(p.waiters[id], func(c chan pollResult[S]) bool { return c == result })
	if len(left) == 0 {
		delete(p.waiters, id)

		return
	}

	p.waiters[id] = left
}

// takeWaiters returns the waits of the next round and removes them. It returns none once ctx is
// cancelled: what waits then waits for the polling that started after this one.
func (p *StatePoller[S]) takeWaiters(ctx context.Context) map[string][]chan pollResult[S] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return nil
	}

	waiters := p.waiters
	p.waiters = nil

	return waiters
}

// pollStates describes what is waited for, round by round, until ctx is cancelled.
func (p *StatePoller[S]) pollStates(ctx context.Context) {
	for delay := minPollInterval; sleep.For(ctx, delay) == nil; delay = min(delay*3/2, maxPollInterval) {
		waiters := p.takeWaiters(ctx)
		if len(waiters) == 0 {
			continue
		}

		states, err := p.describeAll(ctx, slices.Sorted(maps.Keys(waiters)))
		for id, list := range waiters {
			state, found := states[id]
			for _, result := range list {
				result <- pollResult[S]{state: state, found: found, err: err}
			}
		}
	}
}

// describeAll calls Describe for ids, with as many as one call may have.
func (p *StatePoller[S]) describeAll(ctx context.Context, ids []string) (map[string]S, error) {
	states := map[string]S{}
	for chunk := range slices.Chunk(ids, MaxDescribedIDs) {
		found, err := p.Describe(ctx, chunk)
		if err != nil {
			return nil, err
		}

		maps.Copy(states, found)
	}

	return states, nil
}
