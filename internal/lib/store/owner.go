// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// ownerHeader makes S3 refuse a request if the bucket belongs to another account (ExpectedBucketOwner).
const ownerHeader = "X-Amz-Expected-Bucket-Owner"

// ExpectOwner is an option of an S3 client. Every request then fails with AccessDenied unless account owns the
// bucket, also if somebody else's bucket is open to the caller. An empty account expects nothing.
func ExpectOwner(account string) func(*s3.Options) {
	return func(o *s3.Options) {
		if account == "" {
			return
		}

		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Build.Add(ownerMiddleware(account), middleware.After)
		})
	}
}

// ownerMiddleware sets the header before the request is signed. CreateBucket has no such parameter.
func ownerMiddleware(account string) middleware.BuildMiddleware {
	set := func(
		ctx context.Context,
		in middleware.BuildInput,
		next middleware.BuildHandler,
	) (middleware.BuildOutput, middleware.Metadata, error) {
		request, ok := in.Request.(*smithyhttp.Request)
		if ok && awsmiddleware.GetOperationName(ctx) != "CreateBucket" {
			request.Header.Set(ownerHeader, account)
		}

		return next.HandleBuild(ctx, in)
	}

	return middleware.BuildMiddlewareFunc("SlipwayExpectedBucketOwner", set)
}
