// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix"
)

// CallLimiter counts the calls to AWS and keeps them below AWS's limits. The zero Counter is ready, in real time; it may be
// used by several goroutines.
type CallLimiter struct {
	// Now and Sleep are the clock; nil is real time.
	Now   func() time.Time
	Sleep func(context.Context, time.Duration) error

	mu       sync.Mutex
	calls    map[string]int
	stats    CallStats
	limiters *limiterSet
}

// CallStats is what became of calls beyond their number.
type CallStats struct {
	// Retries counts the calls that were made again, Throttled those of them that AWS refused for their rate, and Unseen
	// those that did not see yet what had just been made.
	Retries, Throttled, NotPropagated int
	// Waited is the time, summed over all calls, that was spent in keeping below limits and before calls were repeated.
	Waited time.Duration
}

// String says it to an operator.
func (s CallStats) String() string {
	if s.Retries == 0 && s.Waited < time.Millisecond {
		return "none was repeated"
	}

	return fmt.Sprintf(
		"%d were repeated: %d throttled, %d too early, %d without an answer; calls waited %s in all",
		s.Retries,
		s.Throttled,
		s.NotPropagated,
		s.Retries-s.Throttled-s.NotPropagated,
		s.Waited.Round(time.Millisecond),
	)
}

// Instrument returns cfg with every call counted, paced and, where that is right, repeated.
func (c *CallLimiter) Instrument(cfg aws.Config) aws.Config { return c.PaceCalls(c.CountCalls(cfg)) }

// CountCalls returns cfg with every call counted, repeated ones each time.
func (c *CallLimiter) CountCalls(cfg aws.Config) aws.Config {
	cfg = cfg.Copy()
	cfg.APIOptions = append(
		slices.Clone(cfg.APIOptions),
		awsfix.AddBodyMiddleware,
		func(stack *middleware.Stack) error {
			return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc(
				"SlipwayCount",
				func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
					c.countCall(awsmiddleware.GetServiceID(ctx) + ":" + awsmiddleware.GetOperationName(ctx))
					return next.HandleDeserialize(ctx, in)
				},
			), middleware.After)
		},
	)

	return cfg
}

func (c *CallLimiter) countCall(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[string]int{}
	}

	c.calls[call]++
}

// Calls returns how often each call was made, retries included, as in "EC2:DescribeVpcs".
func (c *CallLimiter) Calls() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}

// TotalCalls returns the number of calls, and of those that change something.
func (c *CallLimiter) TotalCalls() (all, mutating int) {
	for call, n := range c.Calls() {
		all += n
		_, op, _ := strings.Cut(call, ":")
		if !isReadOnly(op) {
			mutating += n
		}
	}

	return all, mutating
}

// Stats returns what became of the calls so far.
func (c *CallLimiter) Stats() CallStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

func (c *CallLimiter) addWait(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Waited += d
}

func (c *CallLimiter) addRetry(v retryReason, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Retries++
	c.stats.Waited += pause

	switch v {
	case retryThrottled:
		c.stats.Throttled++
	case retryNotPropagated:
		c.stats.NotPropagated++
	case retryTransient, noRetry:
	}
}

func (c *CallLimiter) effectiveClock() clock {
	out := clock{now: c.Now, sleep: c.Sleep}
	if out.now == nil {
		out.now = time.Now //nolint:forbidigo // the zero Counter counts in real time
	}

	if out.sleep == nil {
		out.sleep = Sleep
	}

	return out
}

func (c *CallLimiter) limiterSet() *limiterSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limiters == nil {
		c.limiters = &limiterSet{clock: c.effectiveClock()}
	}

	return c.limiters
}
