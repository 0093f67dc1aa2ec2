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
	"github.com/slipway-k8s/slipway/internal/lib/sleep"
)

// CallLimiter counts the calls to AWS, keeps them below AWS's rate limits, and retries those that
// are safe to retry. The zero value is ready to use, in real time. Its methods may be called
// concurrently.
type CallLimiter struct {
	// Now returns the current time. It is set by tests; nil means [time.Now].
	Now func() time.Time
	// Sleep pauses until the duration has passed or the context is cancelled. It is set by tests;
	// nil means [Sleep].
	Sleep func(context.Context, time.Duration) error

	mu       sync.Mutex
	calls    map[string]int // attempts by service and operation, such as EC2:DescribeVpcs
	stats    CallStats
	limiters *limiterSet // nil before the first paced call
}

// CallStats counts the retries of calls, and their causes.
type CallStats struct {
	// Retries is the number of calls that were sent again, for whatever cause.
	Retries int
	// Throttled is the number of Retries after AWS refused a call because of its rate.
	Throttled int
	// NotPropagated is the number of Retries after AWS did not find a resource that had just been
	// created.
	NotPropagated int
	// Waited is the time that all calls together waited to stay below rate limits and before
	// retries.
	Waited time.Duration
}

// String returns s as one line for an operator, such as "24 were retried: 23 throttled, ...".
func (s CallStats) String() string {
	if s.Retries == 0 && s.Waited < time.Millisecond {
		return "none was retried"
	}

	return fmt.Sprintf(
		"%d were retried: %d throttled, %d not propagated yet, %d without an answer; calls waited %s in total",
		s.Retries,
		s.Throttled,
		s.NotPropagated,
		s.Retries-s.Throttled-s.NotPropagated,
		s.Waited.Round(time.Millisecond),
	)
}

// Instrument returns cfg with all calls counted, paced and retried: [CallLimiter.CountCalls] and
// [CallLimiter.PaceCalls].
func (c *CallLimiter) Instrument(cfg aws.Config) aws.Config { return c.PaceCalls(c.CountCalls(cfg)) }

// CountCalls returns cfg with each attempt of a call counted.
func (c *CallLimiter) CountCalls(cfg aws.Config) aws.Config {
	cfg = cfg.Copy()
	cfg.APIOptions = append(slices.Clone(cfg.APIOptions), awsfix.AddBodyMiddleware, c.addCounter)

	return cfg
}

func (c *CallLimiter) addCounter(stack *middleware.Stack) error {
	count := middleware.DeserializeMiddlewareFunc("SlipwayCount", c.countAttempt)

	return stack.Deserialize.Add(count, middleware.After)
}

func (c *CallLimiter) countAttempt(
	ctx context.Context,
	in middleware.DeserializeInput,
	next middleware.DeserializeHandler,
) (middleware.DeserializeOutput, middleware.Metadata, error) {
	c.addCall(awsmiddleware.GetServiceID(ctx) + ":" + awsmiddleware.GetOperationName(ctx))

	return next.HandleDeserialize(ctx, in)
}

func (c *CallLimiter) addCall(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[string]int{}
	}

	c.calls[call]++
}

// Calls returns how often each call was sent, retries included. Its keys are service and operation,
// such as "EC2:DescribeVpcs".
func (c *CallLimiter) Calls() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return maps.Clone(c.calls)
}

// TotalCalls returns the number of all calls, retries included, and of those among them that may
// change a resource.
func (c *CallLimiter) TotalCalls() (all, mutating int) {
	for call, n := range c.Calls() {
		all += n
		_, operation, _ := strings.Cut(call, ":")
		if !isReadOnly(operation) {
			mutating += n
		}
	}

	return all, mutating
}

// Stats returns the retries so far.
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

func (c *CallLimiter) addRetry(reason retryReason, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Retries++
	c.stats.Waited += pause

	switch reason {
	case retryThrottled:
		c.stats.Throttled++
	case retryNotPropagated:
		c.stats.NotPropagated++
	case retryTransient, noRetry:
	}
}

// effectiveClock returns the clock that tests set, or real time.
func (c *CallLimiter) effectiveClock() clock {
	out := clock{now: c.Now, sleep: c.Sleep}
	if out.now == nil {
		out.now = time.Now //nolint:forbidigo // the zero CallLimiter uses real time
	}

	if out.sleep == nil {
		out.sleep = sleep.For
	}

	return out
}

// limiterSet returns the limiters, which the first call creates.
func (c *CallLimiter) limiterSet() *limiterSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limiters == nil {
		c.limiters = &limiterSet{clock: c.effectiveClock()}
	}

	return c.limiters
}
