// SPDX-License-Identifier: Apache-2.0

package server

import "github.com/slipway-k8s/slipway/internal/region/wire"

// errorCode is a code of the errors that the server itself answers with: the errors of AWS that an operator injects, and that
// of a service which the region does not have. The API references have the codes as told below, the messages are those
// of AWS's answers.
type errorCode string

const (
	// codeInternal and codeRequestLimitExceeded are of EC2
	// (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html).
	codeInternal             errorCode = "InternalError"
	codeRequestLimitExceeded errorCode = "RequestLimitExceeded"
	// codeSlowDown is of S3 (https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html).
	codeSlowDown errorCode = "SlowDown"
	// codeThrottling is of the query protocol and of Route 53: aws-sdk-go-v2 retries it (aws/retry/standard.go).
	codeThrottling errorCode = "Throttling"
	// codeThrottlingException is of the JSON protocol (https://docs.aws.amazon.com/kms/latest/APIReference/CommonErrors.html).
	codeThrottlingException errorCode = "ThrottlingException"
	// codeTooManyRequests is of Lambda (https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html).
	codeTooManyRequests errorCode = "TooManyRequestsException"
	// codeUnknownService is the region's.
	codeUnknownService errorCode = "UnknownService"
)

// newError returns the error of a code with an HTTP status; 0 means 400.
func newError(c errorCode, status int, message string) *wire.Error {
	return &wire.Error{Code: string(c), Message: message, Status: status}
}
