// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/awsfix"
)

// reads says whether an operation only reads.
func reads(operation string) bool {
	return slices.ContainsFunc([]string{"Describe", "List", "Get", "Head", "Decrypt", "Encrypt", "GenerateDataKey", "Simulate"}, func(p string) bool { return strings.HasPrefix(operation, p) })
}

// repeatable says whether an operation may be made again when it is not known whether it was carried out: it only reads,
// it says what is to be in the end, as a rule does, or it carries a client token. To delete by an id what is gone already is
// answered as not found, which is as good as done. A second VPC would come of any other: the next plan
// finds by its tag what the first call made.
func repeatable(operation string, input any) bool {
	if reads(operation) || carriesToken(input) {
		return true
	}
	return slices.ContainsFunc([]string{"Modify", "Put", "Set", "Tag", "Untag", "CreateTags", "Delete", "Release", "Terminate", "AddTags", "RemoveTags", "Update", "Enable", "Disable", "Authorize"},
		func(p string) bool { return strings.HasPrefix(operation, p) })
}

// verdict is what is to be done about a failed call.
type verdict string

const (
	giveUp    verdict = ""
	throttle  verdict = "throttled" // AWS refused it for its rate: nothing happened
	transient verdict = "no answer" // the connection broke or AWS erred: it may have happened
	unseen    verdict = "not seen"  // what was just made is not seen by all of AWS yet
)

// retryPolicy is how a verdict's calls are made again.
type retryPolicy struct {
	first, last time.Duration // pause before the first and the later tries, before jitter
	patience    time.Duration // since the first try
	tries       int           // at most; 0: as patience lasts
}

func retryPolicyOf(v verdict) retryPolicy {
	switch v {
	case throttle:
		return retryPolicy{first: 250 * time.Millisecond, last: 5 * time.Second, patience: 10 * time.Minute}
	case transient:
		return retryPolicy{first: 200 * time.Millisecond, last: 2 * time.Second, patience: time.Minute, tries: maxTries}
	case unseen:
		return retryPolicy{first: 250 * time.Millisecond, last: 2 * time.Second, patience: time.Minute}
	case giveUp:
	}
	return retryPolicy{}
}

// maxTries is how often a call is made when connections break.
const maxTries = 4

type freshKey struct{}

// fresh says that calls may be about what was made a moment ago. AWS tells its parts of new things within seconds, not
// at once.
func fresh(ctx context.Context) context.Context { return context.WithValue(ctx, freshKey{}, true) }

// judge is the table from a failed call to what is to be done about it.
func judge(ctx context.Context, operation string, input any, err error) verdict {
	var api smithy.APIError
	var resp *smithyhttp.ResponseError
	switch {
	case err == nil, ctx.Err() != nil:
		return giveUp
	case errors.As(err, &api) && throttled(api.ErrorCode()):
		return throttle
	case errors.As(err, &resp) && resp.HTTPStatusCode() >= http.StatusInternalServerError, !errors.As(err, &api):
		if repeatable(operation, input) {
			return transient
		}
	case ctx.Value(freshKey{}) != nil && classify(err) == plan.NotFound && !undoes(operation, api):
		return unseen
	}
	return giveUp
}

// undoes says whether an operation removes something, and that is what is not found: it is gone already. That the group
// is not seen whose rule is to go is another thing.
func undoes(operation string, err smithy.APIError) bool {
	if strings.HasPrefix(operation, "Revoke") {
		return err.ErrorCode() != "InvalidGroup.NotFound"
	}
	return slices.ContainsFunc([]string{"Delete", "Detach", "Remove", "Release", "Disassociate", "Untag"}, func(p string) bool {
		return strings.HasPrefix(operation, p)
	})
}

// once makes the SDK send a call once: what is to be repeated is [judge]'s to say.
type once struct{ aws.NopRetryer }

// paced says whether cfg's calls go through a [Counter]'s buckets already.
func paced(cfg aws.Config) bool {
	if cfg.Retryer == nil {
		return false
	}
	_, ok := cfg.Retryer().(once)
	return ok
}

// Pace returns cfg with calls kept below AWS's limits and repeated where that is right. Attempts are not counted: see
// [Counter.Watch].
func (c *Counter) Pace(cfg aws.Config) aws.Config {
	cfg = cfg.Copy()
	cfg.Retryer = func() aws.Retryer { return once{} }
	cfg.APIOptions = append(slices.Clone(cfg.APIOptions), awsfix.Bodies, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("SlipwayPace", c.pace), middleware.After)
	})
	return cfg
}

func (c *Counter) pace(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
	operation := awsmiddleware.GetOperationName(ctx)
	b := c.pacer().of(awsmiddleware.GetServiceID(ctx), operation)
	clock := c.clock()
	start := clock.now()
	for try := 1; ; try++ {
		asked := clock.now()
		sent, err := b.enter(ctx)
		if err != nil {
			return middleware.InitializeOutput{}, middleware.Metadata{}, err
		}
		c.waited(sent.Sub(asked))
		out, meta, err := next.HandleInitialize(ctx, in)
		b.leave()
		v := judge(ctx, operation, in.Parameters, err)
		if v == throttle {
			b.throttled(sent)
		} else {
			b.served()
		}
		p := retryPolicyOf(v)
		if v == giveUp || p.tries > 0 && try >= p.tries || clock.now().Sub(start) > p.patience {
			return out, meta, err
		}
		pause := jitter(min(p.first<<min(try-1, 10), p.last)) //nolint:mnd // further doublings exceed every last
		c.retried(v, pause)
		if clock.sleep(ctx, pause) != nil {
			return out, meta, err
		}
	}
}

// jitter spreads d over its second half, so that calls that failed together do not come again together.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) } //nolint:gosec // it only spreads calls

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
