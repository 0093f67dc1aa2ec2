// SPDX-License-Identifier: Apache-2.0

// Package awsfix has workarounds for bugs of aws-sdk-go-v2. It knows no service and makes no call.
package awsfix

import (
	"context"
	"fmt"
	"io"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const bodyMiddlewareID = "SlipwayBodies"

// AddBodyMiddleware is an element of [aws.Config.APIOptions] that prevents the error "use of closed
// network connection" for calls with large requests. smithy-go 1.28.8 closes the body of a request
// as soon as the headers of the response have arrived. A closed body that is an [io.WriterTo] then
// returns io.EOF, which is an error of WriteTo, though not of Read. If net/http has not finished
// its last write of the body by then, it closes the connection while the response is being read.
// The middleware hides WriteTo. Adding it twice has the effect of adding it once.
//
// [aws.Config.APIOptions]: https://pkg.go.dev/github.com/aws/aws-sdk-go-v2/aws#Config
func AddBodyMiddleware(stack *middleware.Stack) error {
	if _, ok := stack.Deserialize.Get(bodyMiddlewareID); ok {
		return nil
	}

	return stack.Deserialize.Add(
		middleware.DeserializeMiddlewareFunc(bodyMiddlewareID, hideWriteTo),
		middleware.After,
	)
}

// hideWriteTo replaces the body of a request by one without WriteTo.
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
			err = fmt.Errorf("replace the body of a request: %w", err)
			return middleware.DeserializeOutput{}, middleware.Metadata{}, err
		}

		in.Request = plain
	}

	return next.HandleDeserialize(ctx, in)
}
