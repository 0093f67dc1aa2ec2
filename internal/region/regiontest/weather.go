// SPDX-License-Identifier: Apache-2.0

package regiontest

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/server"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Stale makes EC2 tell of new resources late: the first n calls that name one, or would list it, do not see it.
func (r Region) Stale(n int) { r.parts.ec2.SetStale(n) }

// Limit is how many calls a second each service takes, reads and changes apart, with a burst of a second's worth.
type Limit struct {
	Reads, Changes float64
	now            func() time.Time

	mu      sync.Mutex
	buckets map[string]*tokens
	refused int
}

type tokens struct {
	left float64
	at   time.Time
}

// Refused counts the calls that were throttled.
func (l *Limit) Refused() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// before is a [server.Config]'s Before.
func (l *Limit) before(_ context.Context, service, op string) error {
	key, rate := service+" reads", l.Reads
	if server.Mutates(op) {
		key, rate = service+" changes", l.Changes
	}
	if rate == 0 || service == "s3" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.buckets == nil {
		l.buckets = map[string]*tokens{}
	}
	b := l.buckets[key]
	if b == nil {
		b = &tokens{left: rate, at: now}
		l.buckets[key] = b
	}
	b.left = min(max(rate, 1), b.left+now.Sub(b.at).Seconds()*rate)
	b.at = now
	if b.left >= 1 {
		b.left--
		return nil
	}
	l.refused++
	switch service {
	case "ec2":
		return &wire.Error{Code: "RequestLimitExceeded", Message: "Request limit exceeded.", Status: http.StatusServiceUnavailable}
	case "kms":
		return &wire.Error{Code: "ThrottlingException", Message: "Rate exceeded", Status: http.StatusBadRequest}
	}
	return &wire.Error{Code: "Throttling", Message: "Rate exceeded", Status: http.StatusBadRequest}
}
