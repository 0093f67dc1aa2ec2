// SPDX-License-Identifier: Apache-2.0

package autoscaling

import "github.com/slipway-k8s/slipway/internal/region/wire"

// errorCode is a code of Auto Scaling's errors. The codes are those of the "Errors" of each operation in the Auto
// Scaling API reference (https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_CreateAutoScalingGroup.html), and
// ValidationError of "Common Errors" (https://docs.aws.amazon.com/autoscaling/ec2/APIReference/CommonErrors.html). The
// reference describes when an error occurs and not its message. The messages are AWS's where tests of moto or LocalStack
// record an answer; the others are the region's.
type errorCode string

const (
	codeAlreadyExists             errorCode = "AlreadyExists"
	codeInvalidNextToken          errorCode = "InvalidNextToken"
	codeLimitExceeded             errorCode = "LimitExceeded"
	codeResourceInUse             errorCode = "ResourceInUse"
	codeScalingActivityInProgress errorCode = "ScalingActivityInProgress"
	codeNotImplemented            errorCode = "NotImplemented" // the region's, for what it does not do
	codeValidation                errorCode = "ValidationError"
)

// newNotImplementedError returns the error for a parameter, or a value of it, that the region does not implement.
func newNotImplementedError(name string) error {
	return newErrorf(codeNotImplemented, "This region does not implement the parameter %s", name)
}

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.Errorf(string(c), format, args...)
}
