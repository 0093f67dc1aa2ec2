// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
)

// Counter counts the calls to AWS. The zero Counter is ready; it may be used by several goroutines.
type Counter struct {
	mu    sync.Mutex
	calls map[string]int
}

// Watch returns cfg with every call counted.
func (c *Counter) Watch(cfg aws.Config) aws.Config {
	cfg = cfg.Copy()
	cfg.APIOptions = append(slices.Clone(cfg.APIOptions), func(stack *middleware.Stack) error {
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
