// SPDX-License-Identifier: Apache-2.0

package aws

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

// Counter counts the calls to AWS and keeps them below AWS's limits. The zero Counter is ready, in real time; it may be
// used by several goroutines.
type Counter struct {
	// Now and Sleep are the clock; nil is real time.
	Now   func() time.Time
	Sleep func(context.Context, time.Duration) error

	mu    sync.Mutex
	calls map[string]int
	stats Stats
	paces *pacer
}

// Stats is what became of calls beyond their number.
type Stats struct {
	// Retries counts the calls that were made again, Throttled those of them that AWS refused for their rate, and Unseen
	// those that did not see yet what had just been made.
	Retries, Throttled, Unseen int
	// Waited is the time, summed over all calls, that was spent in keeping below limits and before calls were repeated.
	Waited time.Duration
}

// String says it to an operator.
func (s Stats) String() string {
	if s.Retries == 0 && s.Waited < time.Millisecond {
		return "none was repeated"
	}
	return fmt.Sprintf("%d were repeated: %d throttled, %d too early, %d without an answer; calls waited %s in all",
		s.Retries, s.Throttled, s.Unseen, s.Retries-s.Throttled-s.Unseen, s.Waited.Round(time.Millisecond))
}

// Watch returns cfg with every call counted, paced and, where that is right, repeated.
func (c *Counter) Watch(cfg aws.Config) aws.Config { return c.Pace(c.Count(cfg)) }

// Count returns cfg with every call counted, repeated ones each time.
func (c *Counter) Count(cfg aws.Config) aws.Config {
	cfg = cfg.Copy()
	cfg.APIOptions = append(slices.Clone(cfg.APIOptions), awsfix.Bodies, func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("SlipwayCount",
			func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
				c.add(awsmiddleware.GetServiceID(ctx) + ":" + awsmiddleware.GetOperationName(ctx))
				return next.HandleDeserialize(ctx, in)
			}), middleware.After)
	})
	return cfg
}

func (c *Counter) add(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[string]int{}
	}
	c.calls[call]++
}

// Calls returns how often each call was made, retries included, as in "EC2:DescribeVpcs".
func (c *Counter) Calls() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}

// Total returns the number of calls, and of those that change something.
func (c *Counter) Total() (all, mutating int) {
	for call, n := range c.Calls() {
		all += n
		_, op, _ := strings.Cut(call, ":")
		if !reads(op) {
			mutating += n
		}
	}
	return all, mutating
}

// Stats returns what became of the calls so far.
func (c *Counter) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

func (c *Counter) waited(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Waited += d
}

func (c *Counter) retried(v verdict, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Retries++
	c.stats.Waited += pause
	switch v {
	case throttle:
		c.stats.Throttled++
	case unseen:
		c.stats.Unseen++
	case transient, giveUp:
	}
}

func (c *Counter) clock() clock {
	out := clock{now: c.Now, sleep: c.Sleep}
	if out.now == nil {
		out.now = time.Now //nolint:forbidigo // the zero Counter counts in real time
	}
	if out.sleep == nil {
		out.sleep = sleep
	}
	return out
}

func (c *Counter) pacer() *pacer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paces == nil {
		c.paces = &pacer{clock: c.clock()}
	}
	return c.paces
}
