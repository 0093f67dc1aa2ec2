// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/awsfix"
)

// retryReason is what is to be done about a failed call.
type retryReason string

const (
	noRetry            retryReason = ""
	retryThrottled     retryReason = "throttled" // AWS refused it for its rate: nothing happened
	retryTransient     retryReason = "no answer" // the connection broke or AWS erred: it may have happened
	retryNotPropagated retryReason = "not seen"  // what was just made is not seen by all of AWS yet
)

// retryPolicy is how a verdict's calls are made again.
type retryPolicy struct {
	firstDelay, maxDelay time.Duration // pause before the first and the later tries, before jitter
	timeout              time.Duration // since the first try
	maxAttempts          int           // at most; 0: as patience lasts
}

func retryPolicyFor(v retryReason) retryPolicy {
	switch v {
	case retryThrottled:
		return retryPolicy{
			firstDelay: 250 * time.Millisecond,
			maxDelay:   5 * time.Second,
			timeout:    10 * time.Minute,
		}

	case retryTransient:
		return retryPolicy{
			firstDelay:  200 * time.Millisecond,
			maxDelay:    2 * time.Second,
			timeout:     time.Minute,
			maxAttempts: maxTransientAttempts,
		}

	case retryNotPropagated:
		return retryPolicy{
			firstDelay: 250 * time.Millisecond,
			maxDelay:   2 * time.Second,
			timeout:    time.Minute,
		}

	case noRetry:
	}

	return retryPolicy{}
}

// maxTransientAttempts is how often a call is made when connections break.
const maxTransientAttempts = 4

type propagationKey struct{}

// ExpectPropagation says that calls may be about what was made a moment ago. AWS tells its parts of new things within seconds, not
// at once.
func ExpectPropagation(ctx context.Context) context.Context {
	return context.WithValue(ctx, propagationKey{}, true)
}

// classifyRetry is the table from a failed call to what is to be done about it.
func classifyRetry(ctx context.Context, operation string, input any, err error) retryReason {
	var api smithy.APIError
	var resp *smithyhttp.ResponseError
	switch {
	case err == nil, ctx.Err() != nil:
		return noRetry
	case errors.As(err, &api) && isThrottleCode(api.ErrorCode()):
		return retryThrottled
	case errors.As(err, &resp) && resp.HTTPStatusCode() >= http.StatusInternalServerError,
		!errors.As(err, &api):
		if isIdempotent(operation, input) {
			return retryTransient
		}

	case ctx.Value(propagationKey{}) != nil && classifyError(err) == plan.NotFound && !isDeletedAlready(operation, api):
		return retryNotPropagated
	}

	return noRetry
}

// singleAttempt makes the SDK send a call once: what is to be repeated is [classifyRetry]'s to say.
type singleAttempt struct{ aws.NopRetryer }

// IsPaced says whether cfg's calls go through a [CallLimiter]'s buckets already.
func IsPaced(cfg aws.Config) bool {
	if cfg.Retryer == nil {
		return false
	}

	_, ok := cfg.Retryer().(singleAttempt)
	return ok
}

// PaceCalls returns cfg with calls kept below AWS's limits and repeated where that is right. Attempts are not counted: see
// [Counter.Instrument].
func (c *CallLimiter) PaceCalls(cfg aws.Config) aws.Config {
	cfg = cfg.Copy()
	cfg.Retryer = func() aws.Retryer { return singleAttempt{} }
	cfg.APIOptions = append(
		slices.Clone(cfg.APIOptions),
		awsfix.AddBodyMiddleware,
		func(stack *middleware.Stack) error {
			return stack.Initialize.Add(
				middleware.InitializeMiddlewareFunc("SlipwayPace", c.paceInitialize),
				middleware.After,
			)
		},
	)

	return cfg
}

func (c *CallLimiter) paceInitialize(
	ctx context.Context,
	in middleware.InitializeInput,
	next middleware.InitializeHandler,
) (middleware.InitializeOutput, middleware.Metadata, error) {
	operation := awsmiddleware.GetOperationName(ctx)
	b := c.limiterSet().limiterFor(awsmiddleware.GetServiceID(ctx), operation)
	clock := c.effectiveClock()
	start := clock.now()

	for try := 1; ; try++ {
		asked := clock.now()
		sent, err := b.acquireSlot(ctx)
		if err != nil {
			return middleware.InitializeOutput{}, middleware.Metadata{}, err
		}

		c.addWait(sent.Sub(asked))
		out, meta, err := next.HandleInitialize(ctx, in)
		b.releaseSlot()
		v := classifyRetry(ctx, operation, in.Parameters, err)
		if v == retryThrottled {
			b.recordThrottle(sent)
		} else {
			b.recordSuccess()
		}

		p := retryPolicyFor(v)
		if v == noRetry || p.maxAttempts > 0 && try >= p.maxAttempts || clock.now().Sub(start) > p.timeout {
			return out, meta, err
		}

		pause := addJitter(
			min(p.firstDelay<<min(try-1, 10), p.maxDelay),
		) //nolint:mnd // further doublings exceed every last
		c.addRetry(v, pause)
		if clock.sleep(ctx, pause) != nil {
			return out, meta, err
		}
	}
}

// addJitter spreads d over its second half, so that calls that failed together do not come again together.
func addJitter(
	d time.Duration,
) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // jitter needs no cryptographic randomness
}

func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
