// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
)

// reads says whether an operation only reads.
func reads(operation string) bool {
	return slices.ContainsFunc([]string{"Describe", "List", "Get", "Head"}, func(p string) bool { return strings.HasPrefix(operation, p) })
}

// How often a call that only reads is made again when the connection breaks, and after what time first.
const (
	maxReads   = 4
	firstPause = 200 * time.Millisecond
)

// rereading returns cfg with calls that only read repeated when the connection, not AWS, failed. Calls that change
// something are not: see [retryer].
func rereading(cfg aws.Config) aws.Config {
	cfg = cfg.Copy()
	cfg.APIOptions = append(slices.Clone(cfg.APIOptions), func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("SlipwayReread", reread), middleware.After)
	})
	return cfg
}

func reread(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
	pause := firstPause
	for n := 1; ; n++ {
		out, meta, err := next.HandleInitialize(ctx, in)
		var api smithy.APIError
		if err == nil || errors.As(err, &api) || !reads(awsmiddleware.GetOperationName(ctx)) || n == maxReads {
			return out, meta, err
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return out, meta, err
		case <-t.C:
		}
		pause *= 2
	}
}
