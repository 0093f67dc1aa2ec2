// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"sync"
	"time"
)

// adaptiveLimiter paces the calls of one class to one API. It knows no limit until AWS names one by throttling: from then on it
// halves its rate with each throttle and grows it again, as TCP does.
type adaptiveLimiter struct {
	clock clock
	// turn is held by who goes next, so that calls go in the order in which they came.
	turn chan struct{}
	// inFlight bounds the calls under way.
	inFlight chan struct{}

	mu          sync.Mutex
	rate        float64 // calls a second; 0: none is known
	ceiling     float64 // the rate that was too much last time
	nextSend    time.Time
	lastCut     time.Time // when the rate was last cut
	recentSends []time.Time
}

// The pace.
const (
	// maxInFlight is how many calls of one class are under way at most.
	maxInFlight = 32
	// minRate is what the rate never falls below, in calls a second.
	minRate = 0.25
	// rateGrowth of the rate each second, as a part of the rate that was too much last time: careful around that rate, since
	// it is likely to be too much again.
	rateGrowth     = 0.05
	cautiousGrowth = 0.01
	// cautiousFrom is where careful begins and cautiousUntil where it ends: by then the limit has been lifted.
	cautiousFrom, cautiousUntil = 0.85, 1.15
	// rateWindow is how long calls are remembered to know the rate at the first throttle.
	rateWindow = time.Second
)

// clock is time as calls see it.
type clock struct {
	now   func() time.Time
	sleep func(context.Context, time.Duration) error
}

func newAdaptiveLimiter(c clock) *adaptiveLimiter {
	return &adaptiveLimiter{
		clock:    c,
		turn:     make(chan struct{}, 1),
		inFlight: make(chan struct{}, maxInFlight),
	}
}

// acquireSlot waits until a call may be made and returns when that is. Each enter that succeeds needs a leave.
func (b *adaptiveLimiter) acquireSlot(ctx context.Context) (time.Time, error) {
	select {
	case b.inFlight <- struct{}{}:
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}

	at, err := b.waitTurn(ctx)
	if err != nil {
		<-b.inFlight
	}

	return at, err
}

func (b *adaptiveLimiter) releaseSlot() { <-b.inFlight }

func (b *adaptiveLimiter) waitTurn(ctx context.Context) (time.Time, error) {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}

	for {
		at, wait := b.reserveTime()
		if wait <= 0 {
			return at, nil
		}

		if err := b.clock.sleep(ctx, wait); err != nil {
			return time.Time{}, err
		}
	}
}

// reserveTime takes the next place if it is free now, else it says how long it is to be waited for.
func (b *adaptiveLimiter) reserveTime() (time.Time, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.now()
	if b.rate > 0 {
		if wait := b.nextSend.Sub(now); wait > 0 {
			return now, wait
		}

		b.nextSend = now.Add(time.Duration(float64(time.Second) / b.rate))
	}

	for len(b.recentSends) > 0 && now.Sub(b.recentSends[0]) > rateWindow {
		b.recentSends = b.recentSends[1:]
	}

	b.recentSends = append(b.recentSends, now)

	return now, 0
}

// recordThrottle says that AWS refused a call that was sent at a time. Calls that were under way when the rate was cut last
// say nothing about the new rate.
func (b *adaptiveLimiter) recordThrottle(sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.lastCut.IsZero() && !sent.After(b.lastCut) {
		return
	}

	now := b.clock.now()
	rate := b.rate
	if rate == 0 {
		rate = float64(len(b.recentSends)) / rateWindow.Seconds()
	}

	b.ceiling = rate
	b.rate = max(rate/2, minRate)
	b.lastCut = now
	b.nextSend = now.Add(time.Duration(float64(time.Second) / b.rate))
}

// recordSuccess says that AWS answered a call.
func (b *adaptiveLimiter) recordSuccess() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate == 0 {
		return
	}

	more := rateGrowth
	if part := b.rate / b.ceiling; part > cautiousFrom && part < cautiousUntil {
		more = cautiousGrowth
	}

	b.rate += more * b.ceiling / b.rate // there are rate answers a second
}

// limiterSet has the buckets of all APIs.
type limiterSet struct {
	clock clock

	mu       sync.Mutex
	limiters map[string]*adaptiveLimiter
}

// limiterFor returns the bucket of an API's class of calls. AWS counts calls that read and calls that change apart.
func (p *limiterSet) limiterFor(service, operation string) *adaptiveLimiter {
	key := service + " changes"
	if isReadOnly(operation) {
		key = service + " reads"
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limiters == nil {
		p.limiters = map[string]*adaptiveLimiter{}
	}

	b := p.limiters[key]
	if b == nil {
		b = newAdaptiveLimiter(p.clock)
		p.limiters[key] = b
	}

	return b
}
