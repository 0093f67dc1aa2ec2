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

// GateChanges returns cfg with every call that may change something asked for first: what may returns ends the call before it
// is sent. It is asked again for each try, so that a call that waits for its next one is not sent too late.
func GateChanges(cfg aws.Config, may func(context.Context) error) aws.Config {
	cfg = cfg.Copy()
	cfg.APIOptions = append(slices.Clone(cfg.APIOptions), func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc(
			"SlipwayGate",
			func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
				if op := awsmiddleware.GetOperationName(ctx); !isReadOnly(op) {
					if err := may(ctx); err != nil {
						return middleware.DeserializeOutput{}, middleware.Metadata{}, fmt.Errorf(
							"%s is not sent: %w",
							op,
							err,
						)
					}
				}

				return next.HandleDeserialize(ctx, in)
			},
		), middleware.Before)
	})

	return cfg
}
