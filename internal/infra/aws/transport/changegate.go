// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
)

// GateChanges returns cfg with may called before each call that may change a resource. If may
// returns an error, the call is not sent and fails with that error wrapped. may is called before
// each retry too, so that a call that waited for its retry is not sent too late.
func GateChanges(cfg aws.Config, may func(context.Context) error) aws.Config {
	gate := middleware.DeserializeMiddlewareFunc("SlipwayGate", func(
		ctx context.Context,
		in middleware.DeserializeInput,
		next middleware.DeserializeHandler,
	) (middleware.DeserializeOutput, middleware.Metadata, error) {
		operation := awsmiddleware.GetOperationName(ctx)
		if isReadOnly(operation) {
			return next.HandleDeserialize(ctx, in)
		}

		if err := may(ctx); err != nil {
			err = fmt.Errorf("%s was not sent: %w", operation, err)
			return middleware.DeserializeOutput{}, middleware.Metadata{}, err
		}

		return next.HandleDeserialize(ctx, in)
	})

	cfg = cfg.Copy()
	cfg.APIOptions = append(slices.Clone(cfg.APIOptions), func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(gate, middleware.Before)
	})

	return cfg
}
