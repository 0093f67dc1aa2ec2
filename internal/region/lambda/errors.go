// SPDX-License-Identifier: Apache-2.0

package lambda

import (
	"net/http"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// errorCode is a code of Lambda's errors. The codes are those of the "Errors" of CreateFunction, Invoke, AddPermission
// and the other operations in the Lambda API reference
// (https://docs.aws.amazon.com/lambda/latest/api/API_CreateFunction.html), and AccessDeniedException,
// UnknownOperationException and ValidationException of "Common Error Types"
// (https://docs.aws.amazon.com/lambda/latest/api/CommonErrors.html). The statuses are those of the operations' "Errors".
// The messages are AWS's where tests of moto or LocalStack record an answer; the others are the region's.
type errorCode string

const (
	codeAccessDenied          errorCode = "AccessDeniedException"
	codeInvalidParameterValue errorCode = "InvalidParameterValueException"
	codeInvalidRequestContent errorCode = "InvalidRequestContentException"
	codePreconditionFailed    errorCode = "PreconditionFailedException"
	codeResourceConflict      errorCode = "ResourceConflictException"
	codeResourceNotFound      errorCode = "ResourceNotFoundException"
	codeUnknownOperation      errorCode = "UnknownOperationException"
	codeValidation            errorCode = "ValidationException"
)

// message returns AWS's fixed message of a code; empty if the message depends on the request.
func (c errorCode) message() string {
	return map[errorCode]string{
		codePreconditionFailed: "The RevisionId provided does not match the latest RevisionId. Call the " +
			"GetFunction/GetAlias API to retrieve the latest RevisionId",
	}[c]
}

// status returns the HTTP status of a code.
func (c errorCode) status() int {
	switch c {
	case codeResourceNotFound, codeUnknownOperation:
		return http.StatusNotFound
	case codeAccessDenied:
		return http.StatusForbidden
	case codeResourceConflict:
		return http.StatusConflict
	case codePreconditionFailed:
		return http.StatusPreconditionFailed
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
