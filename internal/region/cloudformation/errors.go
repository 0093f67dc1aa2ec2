// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"net/http"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// errorCode is a code of CloudFormation's errors. The codes are those of the "Errors" of CreateStack, CreateChangeSet
// and ExecuteChangeSet in the CloudFormation API reference
// (https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_CreateStack.html). ValidationError, of "Common
// Errors", is in package template. The reference describes when an error occurs and not its message. The messages are
// AWS's where tests of moto or LocalStack record an answer; the others are the region's.
type errorCode string

const (
	codeAlreadyExists            errorCode = "AlreadyExistsException"
	codeChangeSetNotFound        errorCode = "ChangeSetNotFound"
	codeInsufficientCapabilities errorCode = "InsufficientCapabilitiesException"
	codeInvalidChangeSetStatus   errorCode = "InvalidChangeSetStatus"
	codeLimitExceeded            errorCode = "LimitExceededException"
)

// The codes of requests to a service that fail before the service gets them: they are in the events of a stack and not
// in CloudFormation's answers. InvalidRequest is also the class of errors without another one, "Handler error codes" in
// https://docs.aws.amazon.com/cloudformation-cli/latest/userguide/resource-type-test-contract-errors.html.
const (
	codeInvalidRequest     errorCode = "InvalidRequest"
	codeServiceUnavailable errorCode = "ServiceUnavailable"
)

// message returns AWS's fixed message of a code; empty if the message depends on the request.
func (c errorCode) message() string {
	return map[errorCode]string{
		codeLimitExceeded: "Limit for stack has been exceeded",
	}[c]
}

// status returns the HTTP status of a code.
func (c errorCode) status() int {
	switch c {
	case codeChangeSetNotFound:
		return http.StatusNotFound
	default:
		return http.StatusBadRequest
	}
}

// newError returns the error of a code with its fixed message.
func newError(c errorCode) *wire.Error { return newErrorf(c, "%s", c.message()) }

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.StatusErrorf(string(c), c.status(), format, args...)
}
