// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"sync"
	"time"
)

// adaptiveLimiter paces the calls of one class to one API. It sets no limit until AWS throttles a
// call. From then on it halves its rate with each throttled call, and lets it grow again with each
// answer, as TCP does.
type adaptiveLimiter struct {
	clock clock
	// turn has room for the call that is sent next, so that calls are sent in the order in which
	// they arrived.
	turn chan struct{}
	// inFlight has room for the calls that are sent and not answered.
	inFlight chan struct{}

	mu          sync.Mutex
	rate        float64 // calls per second; 0: no limit is known
	ceiling     float64 // the rate at the last throttled call
	nextSend    time.Time
	lastCut     time.Time   // when rate was halved last
	recentSends []time.Time // the calls of the last rateWindow
}

const (
	// maxInFlight is how many calls of one class are sent and not answered at most.
	maxInFlight = 32
	// minRate is the lowest rate, in calls per second.
	minRate = 0.25
	// rateGrowth is the growth of the rate per second, as a fraction of the ceiling.
	rateGrowth = 0.05
	// cautiousGrowth replaces rateGrowth near the ceiling, where the next throttled call is likely.
	cautiousGrowth = 0.01
	// cautiousFrom and cautiousUntil bound cautious growth, as fractions of the ceiling. Above
	// them, AWS has raised its limit.
	cautiousFrom  = 0.85
	cautiousUntil = 1.15
	// rateWindow is how long calls are remembered, to know the rate at the first throttled call.
	rateWindow = time.Second
)

// clock is the time that a limiter uses.
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

// acquireSlot waits until a call may be sent, and returns that time. After a success the caller
// calls releaseSlot.
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

// waitTurn waits for earlier calls and for the rate.
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

// reserveTime reserves the present moment for a call, or returns how long to wait before trying
// again.
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

// recordThrottle halves the rate after AWS throttled a call that was sent at sent. Calls that were
// sent before the rate was halved last do not count: they tell nothing about the new rate.
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

// recordSuccess raises the rate after AWS answered a call.
func (b *adaptiveLimiter) recordSuccess() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate == 0 {
		return
	}

	growth := rateGrowth
	if fraction := b.rate / b.ceiling; fraction > cautiousFrom && fraction < cautiousUntil {
		growth = cautiousGrowth
	}

	b.rate += growth * b.ceiling / b.rate // a second has b.rate answers
}

// limiterSet has the limiters of all APIs.
type limiterSet struct {
	clock clock

	mu       sync.Mutex
	limiters map[string]*adaptiveLimiter // by service and class of calls
}

// limiterFor returns the limiter of an operation. AWS limits reads and changes of one API
// separately.
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
