// SPDX-License-Identifier: Apache-2.0

package join

import (
	"net"
	"sync"
	"time"
)

// Rate limits of certificate requests: burst, and requests per second. Each request costs one call to STS and one to
// EC2. A single address, as that of a machine with a misbehaving pod, gets a part of what all get together.
const (
	requestBurst       = 50
	requestRate        = 10
	callerRequestBurst = 20
	callerRequestRate  = 2
	// maxCallers is how many addresses are remembered.
	maxCallers = 4096
)

// requestLimits limits requests by address and altogether. The zero value is ready to use. It is safe for concurrent
// use.
type requestLimits struct {
	mu      sync.Mutex
	all     tokenBucket
	callers map[string]*tokenBucket
}

// take takes a token for a request from an address with a port. It reports whether there was one.
func (l *requestLimits) take(from string, now time.Time) bool {
	host, _, err := net.SplitHostPort(from)
	if err != nil {
		host = from
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.callers == nil {
		l.callers = map[string]*tokenBucket{}
	}

	caller := l.callers[host]
	if caller == nil {
		l.forgetIdle(now)
		caller = &tokenBucket{}
		l.callers[host] = caller
	}

	return caller.take(callerRequestBurst, callerRequestRate, now) && l.all.take(requestBurst, requestRate, now)
}

// forgetIdle makes room for one more address: it forgets those that have all their tokens again, or else any one.
func (l *requestLimits) forgetIdle(now time.Time) {
	if len(l.callers) < maxCallers {
		return
	}

	for host, b := range l.callers {
		if now.Sub(b.refilledAt).Seconds()*callerRequestRate >= callerRequestBurst {
			delete(l.callers, host)
		}
	}

	for host := range l.callers {
		if len(l.callers) < maxCallers {
			return
		}

		delete(l.callers, host)
	}
}

// tokenBucket is full when it is used first.
type tokenBucket struct {
	tokens     float64
	refilledAt time.Time
}

// take takes a token. It reports whether there was one.
func (b *tokenBucket) take(burst, rate float64, now time.Time) bool {
	if b.refilledAt.IsZero() {
		b.tokens = burst
		b.refilledAt = now
	}

	b.tokens = min(burst, b.tokens+rate*now.Sub(b.refilledAt).Seconds())
	b.refilledAt = now
	if b.tokens < 1 {
		return false
	}

	b.tokens--

	return true
}
