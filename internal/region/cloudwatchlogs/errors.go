// SPDX-License-Identifier: Apache-2.0

package cloudwatchlogs

import "github.com/slipway-k8s/slipway/internal/region/wire"

// errorCode is a code of the errors of CloudWatch Logs. The codes are those of the "Errors" of each operation in the API
// reference (https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_CreateLogGroup.html),
// TooManyTagsException that of TagResource. The reference describes when an error occurs and not its message. The
// messages are AWS's where tests of moto or LocalStack record an answer; the others are the region's.
type errorCode string

const (
	codeInvalidParameter      errorCode = "InvalidParameterException"
	codeResourceAlreadyExists errorCode = "ResourceAlreadyExistsException"
	codeResourceNotFound      errorCode = "ResourceNotFoundException"
	codeTooManyTags           errorCode = "TooManyTagsException"
)

// message returns AWS's fixed message of a code; empty if the message depends on the request.
func (c errorCode) message() string {
	return map[errorCode]string{
		codeResourceAlreadyExists: "The specified log group already exists",
	}[c]
}

// newError returns the error of a code with its fixed message.
func newError(c errorCode) *wire.Error { return newErrorf(c, "%s", c.message()) }

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.Errorf(string(c), format, args...)
}
