// SPDX-License-Identifier: Apache-2.0

package eventbridge

import "github.com/slipway-k8s/slipway/internal/region/wire"

// errorCode is a code of EventBridge's errors. The codes are those of the "Errors" of PutRule, PutTargets and the other
// operations in the EventBridge API reference
// (https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutRule.html), and ValidationException of "Common
// Errors" (https://docs.aws.amazon.com/eventbridge/latest/APIReference/CommonErrors.html). The reference describes when
// an error occurs and not its message. The messages are AWS's where tests of moto or LocalStack record an answer; the
// others are the region's.
type errorCode string

const (
	codeInvalidEventPattern errorCode = "InvalidEventPatternException"
	codeLimitExceeded       errorCode = "LimitExceededException"
	codeResourceNotFound    errorCode = "ResourceNotFoundException"
	codeValidation          errorCode = "ValidationException"
)

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.Errorf(string(c), format, args...)
}
