// SPDX-License-Identifier: Apache-2.0

package ssm

import "github.com/slipway-k8s/slipway/internal/region/wire"

// errorCode is a code of the errors of Systems Manager. The codes are those of the "Errors" of PutParameter,
// GetParameter, GetParametersByPath and DeleteParameter in the Systems Manager API reference
// (https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_PutParameter.html), and AccessDeniedException and
// ValidationException of "Common Errors"
// (https://docs.aws.amazon.com/systems-manager/latest/APIReference/CommonErrors.html). The messages are AWS's where
// tests of moto or LocalStack record an answer; the others are the region's. NotImplemented is the region's own, for
// what AWS has and the region does not.
type errorCode string

const (
	codeAccessDenied                errorCode = "AccessDeniedException"
	codeHierarchyLevelLimitExceeded errorCode = "HierarchyLevelLimitExceededException"
	codeInvalidNextToken            errorCode = "InvalidNextToken"
	codeNotImplemented              errorCode = "NotImplemented"
	codeParameterAlreadyExists      errorCode = "ParameterAlreadyExists"
	codeParameterNotFound           errorCode = "ParameterNotFound"
	codeParameterVersionNotFound    errorCode = "ParameterVersionNotFound"
	codeUnsupportedParameterType    errorCode = "UnsupportedParameterType"
	codeValidation                  errorCode = "ValidationException"
)

// message returns AWS's fixed message of a code; empty if the message depends on the request, and for a
// parameter that does not exist, about which Systems Manager tells nothing.
func (c errorCode) message() string {
	return map[errorCode]string{
		codeInvalidNextToken: "The specified token isn't valid.",
		codeParameterAlreadyExists: "The parameter already exists. To overwrite this value, set the overwrite option " +
			"in the request to true.",
	}[c]
}

// newError returns the error of a code with its fixed message.
func newError(c errorCode) *wire.Error { return newErrorf(c, "%s", c.message()) }

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.Errorf(string(c), format, args...)
}
