// SPDX-License-Identifier: Apache-2.0

// Package awsfix mends what aws-sdk-go-v2 gets wrong. It knows no service and makes no call.
package awsfix

import (
	"context"
	"fmt"
	"io"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const bodyMiddlewareID = "SlipwayBodies"

// AddBodyMiddleware is an option of a client's stack that keeps the connection of a call whose request is large. smithy-go 1.28.8
// closes a request's body as soon as the response's headers are there, and a closed body that is an [io.WriterTo] answers
// with io.EOF, which is no error to Read but one to WriteTo. If net/http has not returned from its last look at the body
// by then, it takes the connection down while the response is being read: "use of closed network connection".
// Bodies hides WriteTo. It may be given twice.
func AddBodyMiddleware(stack *middleware.Stack) error {
	if _, ok := stack.Deserialize.Get(bodyMiddlewareID); ok {
		return nil
	}

	return stack.Deserialize.Add(
		middleware.DeserializeMiddlewareFunc(bodyMiddlewareID, hideWriteTo),
		middleware.After,
	)
}

func hideWriteTo(
	ctx context.Context,
	in middleware.DeserializeInput,
	next middleware.DeserializeHandler,
) (middleware.DeserializeOutput, middleware.Metadata, error) {
	request, ok := in.Request.(*smithyhttp.Request)
	if !ok {
		return next.HandleDeserialize(ctx, in)
	}

	if body, seeks := request.GetStream().(io.ReadSeeker); seeks {
		plain, err := request.SetStream(struct{ io.ReadSeeker }{body})
		if err != nil {
			return middleware.DeserializeOutput{}, middleware.Metadata{}, fmt.Errorf(
				"prepare the body of a request: %w",
				err,
			)
		}

		in.Request = plain
	}

	return next.HandleDeserialize(ctx, in)
}
