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

// retryReason is why a failed call is retried.
type retryReason string

const (
	noRetry retryReason = ""
	// retryThrottled: AWS refused the call because of its rate, and did nothing.
	retryThrottled retryReason = "throttled"
	// retryTransient: the connection broke or AWS failed. The call may have had its effect.
	retryTransient retryReason = "no answer"
	// retryNotPropagated: a resource that was just created is not visible everywhere in AWS yet.
	retryNotPropagated retryReason = "not seen"
)

// retryPolicy is how calls are retried for one reason.
type retryPolicy struct {
	firstDelay  time.Duration // the pause before the first retry, before jitter; it doubles with each retry
	maxDelay    time.Duration // the longest pause, before jitter
	timeout     time.Duration // since the first attempt; a later failure is final
	maxAttempts int           // 0: no limit
}

// maxTransientAttempts is how often a call is sent when connections break.
const maxTransientAttempts = 4

func retryPolicyFor(reason retryReason) retryPolicy {
	switch reason {
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

// isExhausted reports whether a call that failed attempt times within elapsed is not retried any
// more.
func (p retryPolicy) isExhausted(attempt int, elapsed time.Duration) bool {
	return p.maxAttempts > 0 && attempt >= p.maxAttempts || elapsed > p.timeout
}

// delayAfter returns the pause after the given attempt, with jitter.
func (p retryPolicy) delayAfter(attempt int) time.Duration {
	const maxDoublings = 10 // by then each policy has reached its maxDelay
	return addJitter(min(p.firstDelay<<min(attempt-1, maxDoublings), p.maxDelay))
}

type propagationKey struct{}

// ExpectPropagation returns a context whose calls are retried when AWS does not find a resource: it
// may have been created a moment ago, and AWS makes new resources visible to all of its parts
// within seconds, not at once.
func ExpectPropagation(ctx context.Context) context.Context {
	return context.WithValue(ctx, propagationKey{}, true)
}

// classifyRetry returns why a call that failed with err is to be retried, if it is.
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

	case ctx.Value(propagationKey{}) == nil, classifyError(err) != plan.NotFound:
		return noRetry
	case !isDeletedAlready(operation, api):
		return retryNotPropagated
	}

	return noRetry
}

// singleAttempt makes the SDK send a call once: [classifyRetry] decides about retries.
type singleAttempt struct{ aws.NopRetryer }

// IsPaced reports whether cfg was returned by [CallLimiter.PaceCalls].
func IsPaced(cfg aws.Config) bool {
	if cfg.Retryer == nil {
		return false
	}

	_, ok := cfg.Retryer().(singleAttempt)

	return ok
}

// PaceCalls returns cfg with calls kept below AWS's rate limits and retried where that is safe. It
// does not count them: see [CallLimiter.CountCalls].
func (c *CallLimiter) PaceCalls(cfg aws.Config) aws.Config {
	cfg = cfg.Copy()
	cfg.Retryer = func() aws.Retryer { return singleAttempt{} }
	cfg.APIOptions = append(slices.Clone(cfg.APIOptions), awsfix.AddBodyMiddleware, c.addPacer)

	return cfg
}

func (c *CallLimiter) addPacer(stack *middleware.Stack) error {
	pace := middleware.InitializeMiddlewareFunc("SlipwayPace", c.paceCall)

	return stack.Initialize.Add(pace, middleware.After)
}

// paceCall sends a call, and sends it again as long as its failure is to be retried.
func (c *CallLimiter) paceCall(
	ctx context.Context,
	in middleware.InitializeInput,
	next middleware.InitializeHandler,
) (middleware.InitializeOutput, middleware.Metadata, error) {
	operation := awsmiddleware.GetOperationName(ctx)
	limiter := c.limiterSet().limiterFor(awsmiddleware.GetServiceID(ctx), operation)
	clock := c.effectiveClock()
	start := clock.now()

	for attempt := 1; ; attempt++ {
		asked := clock.now()
		sent, err := limiter.acquireSlot(ctx)
		if err != nil {
			return middleware.InitializeOutput{}, middleware.Metadata{}, err
		}

		c.addWait(sent.Sub(asked))
		out, meta, err := next.HandleInitialize(ctx, in)
		limiter.releaseSlot()

		reason := classifyRetry(ctx, operation, in.Parameters, err)
		if reason == retryThrottled {
			limiter.recordThrottle(sent)
		} else {
			limiter.recordSuccess()
		}

		policy := retryPolicyFor(reason)
		if reason == noRetry || policy.isExhausted(attempt, clock.now().Sub(start)) {
			return out, meta, err
		}

		pause := policy.delayAfter(attempt)
		c.addRetry(reason, pause)
		if clock.sleep(ctx, pause) != nil {
			return out, meta, err
		}
	}
}

// addJitter returns a random duration between d/2 and d, so that calls that failed together are not
// retried together.
func addJitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // jitter needs no cryptographic randomness
}
