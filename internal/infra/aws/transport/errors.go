// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// Error is a failed call to AWS with its class.
type Error struct {
	// Op is what was being done, such as "create vpc/main".
	Op    string
	class plan.ErrorClass
	err   error
}

// NewError returns an error of class that wraps err. op is what was being done, such as "create
// vpc/main".
func NewError(op string, class plan.ErrorClass, err error) Error {
	return Error{Op: op, class: class, err: err}
}

// Error returns what was being done, and AWS's code and message.
func (e Error) Error() string {
	if api, ok := errors.AsType[smithy.APIError](e.err); ok {
		return e.Op + ": " + api.ErrorCode() + ": " + api.ErrorMessage()
	}

	return e.Op + ": " + plainerror.Text(e.err.Error())
}

// Unwrap returns the SDK's error.
func (e Error) Unwrap() error { return e.err }

// Class returns the class of e. [plan.ErrorClassOf] calls it.
func (e Error) Class() plan.ErrorClass { return e.class }

// ReasonError is an error that consists of a reason in AWS's words, such as why a load balancer
// failed.
type ReasonError string

// Error returns the reason.
func (e ReasonError) Error() string { return string(e) }

// Wrap returns err as an [Error] with the class of its AWS code, and nil for nil. format and args
// are what was being done.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}

	return NewError(fmt.Sprintf(format, args...), classifyError(err), err)
}

// NotYet returns an error of class [plan.NotReady]: AWS accepted the call, but a resource has not
// reached its state yet, so the operation is to be retried.
func NotYet(format string, args ...any) error {
	return NewError("wait", plan.NotReady, fmt.Errorf(format, args...))
}

// MarkNotRetryable returns err without its class, so that the operation that has created the
// resource with id is not retried: a retry would create a second one. The next plan finds the first
// one by its tag. It returns nil for nil.
func MarkNotRetryable(err error, id string) error {
	if err == nil {
		return nil
	}

	return NewError(id+" was created, but", plan.Unclassified, err)
}

// ErrorCode returns AWS's code of err, such as InvalidGroup.NotFound; it is empty for nil and for
// errors that are not AWS's.
func ErrorCode(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}

	return ""
}

// errorClassRule gives a class to the errors that it matches.
type errorClassRule struct {
	class   plan.ErrorClass
	matches func(code, message string) bool
}

// classifyError returns the class of the first rule that matches err.
func classifyError(err error) plan.ErrorClass {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return plan.Unclassified
	}

	for _, r := range errorClassRules() {
		if r.matches(api.ErrorCode(), api.ErrorMessage()) {
			return r.class
		}
	}

	return plan.Unclassified
}

// errorClassRules is the one table from AWS's codes to classes. The order counts.
func errorClassRules() []errorClassRule {
	return []errorClassRule{
		{plan.Throttled, func(code, _ string) bool { return isThrottleCode(code) }},
		{plan.NotReady, isMissingProfile},
		{plan.NotReady, isFunctionNotReady},
		{plan.AlreadyExists, codeContains("AlreadyExists", "Duplicate")},
		{plan.NotFound, codeHasSuffix("NotFound", "NotFoundException")},
		{plan.NotFound, codeIsOneOf(
			"NoSuchEntity",
			"NoSuchHostedZone",
			"InvalidVPCId",
			"InvalidSecurityGroup", // of Elastic Load Balancing
		)},
		{plan.NotFound, isMissingForScaling},
		{plan.InUse, codeContains("InUse")},
		{plan.InUse, codeIsOneOf(
			"DependencyViolation",
			"DeleteConflict",
			"ScalingActivityInProgress",
			"InvalidAddress.Locked",
			"ResourceContention",
		)},
		{plan.NotReady, codeIsOneOf(
			"IncorrectState",
			"IncorrectInstanceState",
			"ConcurrentModification",
			"ConcurrentModificationException", // of EventBridge
			"OperationAbortedException",       // of CloudWatch Logs
			"OperationInProgress",
			"IncorrectModificationState",
			"InvalidStateTransition",
			"ConcurrentAccess", // of SNS
		)},
		{plan.AccessDenied, codeIsOneOf(
			"UnauthorizedOperation",
			"AccessDenied",
			"AccessDeniedException",
			"AuthFailure",
			"AuthorizationError", // of SNS
		)},
		{plan.LimitExceeded, codeHasSuffix("LimitExceeded", "LimitExceededException")},
		{plan.LimitExceeded, codeIsOneOf("VolumeModificationRateExceeded")},
		{plan.LimitExceeded, func(code, _ string) bool { return strings.HasPrefix(code, "TooMany") }},
	}
}

// isMissingProfile matches the errors of EC2 about an instance profile that IAM created seconds
// ago: EC2 does not see it yet. They have no code of their own.
func isMissingProfile(code, message string) bool {
	if !strings.Contains(strings.ToLower(message), "instance profile") {
		return false
	}

	return strings.HasPrefix(code, "Invalid") || code == "ValidationError"
}

// isMissingForScaling matches the errors of Auto Scaling about a launch template or its version that EC2 does not show it, about
// a target group that Elastic Load Balancing does not show it, about a subnet, and about an auto scaling group: it does not
// exist, or was created a moment ago. They have no code of their own.
func isMissingForScaling(code, message string) bool {
	if code != "ValidationError" {
		return false
	}

	isMissing := strings.Contains(message, "does not exist") || strings.Contains(message, "not found")

	return isMissing && strings.Contains(message, "launch template") ||
		strings.Contains(message, "Target Groups may not be valid") ||
		isMissing && strings.HasPrefix(message, "The subnet ID '") ||
		strings.HasPrefix(message, "AutoScalingGroup name not found")
}

// isFunctionNotReady matches the errors of Lambda about a function that is still being created or changed, and about a role
// that IAM created seconds ago: Lambda does not see it yet. Their codes have other meanings too.
func isFunctionNotReady(code, message string) bool {
	switch code {
	case "ResourceConflictException":
		return strings.Contains(message, "cannot be performed at this time")
	case "InvalidParameterValueException":
		return strings.Contains(message, "cannot be assumed by Lambda")
	}

	return false
}

func codeContains(parts ...string) func(code, message string) bool {
	return func(code, _ string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(code, p) })
	}
}

func codeHasSuffix(suffixes ...string) func(code, message string) bool {
	return func(code, _ string) bool {
		return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(code, s) })
	}
}

func codeIsOneOf(codes ...string) func(code, message string) bool {
	return func(code, _ string) bool { return slices.Contains(codes, code) }
}

// isThrottleCode reports whether the SDK retries a code as throttling. LimitExceededException is in its list and is none:
// KMS answers with it when a quota is used up, which no retry changes.
func isThrottleCode(code string) bool {
	_, ok := retry.DefaultThrottleErrorCodes[code]

	return ok && code != "LimitExceededException"
}
