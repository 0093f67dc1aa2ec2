// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"sync"
	"time"
)

// bucket paces the calls of one class to one API. It knows no limit until AWS names one by throttling: from then on it
// halves its rate with each throttle and grows it again, as TCP does.
type bucket struct {
	clock clock
	// turn is held by who goes next, so that calls go in the order in which they came.
	turn chan struct{}
	// flight bounds the calls under way.
	flight chan struct{}

	mu      sync.Mutex
	rate    float64 // calls a second; 0: none is known
	ceiling float64 // the rate that was too much last time
	next    time.Time
	cut     time.Time // when the rate was last cut
	sent    []time.Time
}

// The pace.
const (
	// maxFlight is how many calls of one class are under way at most.
	maxFlight = 32
	// slowest is what the rate never falls below, in calls a second.
	slowest = 0.25
	// growth of the rate each second, as a part of the rate that was too much last time: careful around that rate, since
	// it is likely to be too much again.
	growth  = 0.05
	careful = 0.01
	// nearLow is where careful begins and nearHigh where it ends: by then the limit has been lifted.
	nearLow, nearHigh = 0.85, 1.15
	// window is how long calls are remembered to know the rate at the first throttle.
	window = time.Second
)

// clock is time as calls see it.
type clock struct {
	now   func() time.Time
	sleep func(context.Context, time.Duration) error
}

func newBucket(c clock) *bucket {
	return &bucket{clock: c, turn: make(chan struct{}, 1), flight: make(chan struct{}, maxFlight)}
}

// enter waits until a call may be made and returns when that is. Each enter that succeeds needs a leave.
func (b *bucket) enter(ctx context.Context) (time.Time, error) {
	select {
	case b.flight <- struct{}{}:
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
	at, err := b.take(ctx)
	if err != nil {
		<-b.flight
	}
	return at, err
}

func (b *bucket) leave() { <-b.flight }

func (b *bucket) take(ctx context.Context) (time.Time, error) {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
	for {
		at, wait := b.reserve()
		if wait <= 0 {
			return at, nil
		}
		if err := b.clock.sleep(ctx, wait); err != nil {
			return time.Time{}, err
		}
	}
}

// reserve takes the next place if it is free now, else it says how long it is to be waited for.
func (b *bucket) reserve() (time.Time, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.now()
	if b.rate > 0 {
		if wait := b.next.Sub(now); wait > 0 {
			return now, wait
		}
		b.next = now.Add(time.Duration(float64(time.Second) / b.rate))
	}
	for len(b.sent) > 0 && now.Sub(b.sent[0]) > window {
		b.sent = b.sent[1:]
	}
	b.sent = append(b.sent, now)
	return now, 0
}

// throttled says that AWS refused a call that was sent at a time. Calls that were under way when the rate was cut last
// say nothing about the new rate.
func (b *bucket) throttled(sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.cut.IsZero() && !sent.After(b.cut) {
		return
	}
	now := b.clock.now()
	rate := b.rate
	if rate == 0 {
		rate = float64(len(b.sent)) / window.Seconds()
	}
	b.ceiling = rate
	b.rate = max(rate/2, slowest)
	b.cut = now
	b.next = now.Add(time.Duration(float64(time.Second) / b.rate))
}

// served says that AWS answered a call.
func (b *bucket) served() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate == 0 {
		return
	}
	more := growth
	if part := b.rate / b.ceiling; part > nearLow && part < nearHigh {
		more = careful
	}
	b.rate += more * b.ceiling / b.rate // there are rate answers a second
}

// pacer has the buckets of all APIs.
type pacer struct {
	clock clock

	mu      sync.Mutex
	buckets map[string]*bucket
}

// of returns the bucket of an API's class of calls. AWS counts calls that read and calls that change apart.
func (p *pacer) of(service, operation string) *bucket {
	key := service + " changes"
	if reads(operation) {
		key = service + " reads"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.buckets == nil {
		p.buckets = map[string]*bucket{}
	}
	b := p.buckets[key]
	if b == nil {
		b = newBucket(p.clock)
		p.buckets[key] = b
	}
	return b
}
