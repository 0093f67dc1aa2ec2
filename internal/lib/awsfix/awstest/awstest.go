// SPDX-License-Identifier: Apache-2.0

// Package awstest configures the AWS clients of tests, so that each of them has the workarounds of
// package awsfix.
package awstest

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/middleware"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix"
)

// NewConfig returns the configuration of clients that send their calls for region to endpoint, a
// URL such as that of an httptest.Server. Failed calls are not retried, so that a test sees each
// error; set RetryMaxAttempts to 0 for the SDK's own retries.
func NewConfig(endpoint, region string, credentials aws.CredentialsProvider) aws.Config {
	return aws.Config{
		Region:           region,
		BaseEndpoint:     &endpoint,
		Credentials:      credentials,
		RetryMaxAttempts: 1,
		APIOptions:       []func(*middleware.Stack) error{awsfix.AddBodyMiddleware},
	}
}
