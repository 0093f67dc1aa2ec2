// SPDX-License-Identifier: Apache-2.0

package regiontest

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/server"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// DelayVisibility makes the services eventually consistent: the first n calls that name or list a new resource do not see it,
// and neither do the first n filters see new tags, nor the first n decisions new policies of a role. Everything that exists is
// visible then.
func (r Region) DelayVisibility(n int) {
	r.services.SetVisibility(visibility.Delay{Calls: n})
}

// RateLimit limits the calls per second to each service, for reads and for changes, with a burst of one
// second. A limit of 0 is no limit.
type RateLimit struct {
	ReadsPerSecond, ChangesPerSecond float64
	now                              func() time.Time

	mu        sync.Mutex
	buckets   map[string]*tokenBucket
	throttled int
}

type tokenBucket struct {
	available  float64
	refilledAt time.Time
}

// ThrottledCalls returns the number of throttled calls.
func (l *RateLimit) ThrottledCalls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.throttled
}

// checkRate implements Before of [server.Config].
func (l *RateLimit) checkRate(_ context.Context, service, op string) error {
	key := service + " reads"
	rate := l.ReadsPerSecond
	if server.IsMutating(op) {
		key = service + " changes"
		rate = l.ChangesPerSecond
	}

	if rate == 0 || service == "s3" {
		return nil
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.buckets == nil {
		l.buckets = map[string]*tokenBucket{}
	}

	b := l.buckets[key]
	if b == nil {
		b = &tokenBucket{available: rate, refilledAt: now}
		l.buckets[key] = b
	}

	b.available = min(max(rate, 1), b.available+now.Sub(b.refilledAt).Seconds()*rate)
	b.refilledAt = now
	if b.available >= 1 {
		b.available--
		return nil
	}

	l.throttled++

	switch service {
	case "ec2":
		return &wire.Error{
			Code:    "RequestLimitExceeded",
			Message: "Request limit exceeded.",
			Status:  http.StatusServiceUnavailable,
		}

	case "kms":
		return &wire.Error{
			Code:    "ThrottlingException",
			Message: "Rate exceeded",
			Status:  http.StatusBadRequest,
		}
	}

	return &wire.Error{Code: "Throttling", Message: "Rate exceeded", Status: http.StatusBadRequest}
}
