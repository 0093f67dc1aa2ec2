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
)

// Error is a failed call with its class.
type Error struct {
	// Op what, such as "create vpc/main".
	Op    string
	class plan.ErrorClass
	err   error
}

// Error says what was being done and AWS's own words.
func (e Error) Error() string {
	if api, ok := errors.AsType[smithy.APIError](e.err); ok {
		return e.Op + ": " + api.ErrorCode() + ": " + api.ErrorMessage()
	}

	return e.Op + ": " + e.err.Error()
}

// Unwrap returns the SDK's error.
func (e Error) Unwrap() error { return e.err }

// Class implements what [plan.ClassOf] looks for.
func (e Error) Class() plan.ErrorClass { return e.class }

// NewError returns an error of class that wraps err; op is what was being done, such as "create vpc/main".
func NewError(op string, class plan.ErrorClass, err error) Error {
	return Error{Op: op, class: class, err: err}
}

// Wrap gives err the class of its code; nil stays nil.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}

	return Error{Op: fmt.Sprintf(format, args...), class: classifyError(err), err: err}
}

// NotYet is a wait that goes on: AWS accepted everything, but something is on its way still.
func NotYet(format string, args ...any) error {
	return Error{Op: "wait", class: plan.NotReady, err: fmt.Errorf(format, args...)}
}

// MarkNotRetryable keeps err from being tried again: with it the call that has made something would be repeated, and make a second
// one. The next plan finds the first by its tag.
func MarkNotRetryable(err error, made string) error {
	if err == nil {
		return nil
	}

	return Error{Op: made + " is made, but", class: plan.Unclassified, err: err}
}

// ErrorCode returns AWS's code of err, such as InvalidGroup.NotFound; it is empty for nil and for errors that are not AWS's.
func ErrorCode(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}

	return ""
}

// classifyError is the one table from AWS's codes to classes; the first line that fits counts.
func classifyError(err error) plan.ErrorClass {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return plan.Unclassified
	}

	code := api.ErrorCode()
	text := api.ErrorMessage()

	for _, line := range []struct {
		fits  bool
		class plan.ErrorClass
	}{
		{isThrottleCode(code), plan.Throttled},
		// A new profile takes seconds to be seen by EC2.
		{strings.Contains(strings.ToLower(text), "instance profile") && (strings.HasPrefix(code, "Invalid") || code == "ValidationError"), plan.NotReady},
		{codeContains(code, "AlreadyExists", "Duplicate"), plan.AlreadyExists},
		{codeHasSuffix(code, "NotFound", "NotFoundException") || codeIsOneOf(code, "NoSuchEntity"), plan.NotFound},
		{codeContains(code, "InUse") || codeIsOneOf(code, "DependencyViolation", "DeleteConflict", "ScalingActivityInProgress", "InvalidAddress.Locked", "ResourceContention"), plan.InUse},
		{codeIsOneOf(code, "IncorrectState", "IncorrectInstanceState", "ConcurrentModification", "OperationInProgress", "IncorrectModificationState"), plan.NotReady},
		{codeIsOneOf(code, "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure"), plan.AccessDenied},
		{codeHasSuffix(code, "LimitExceeded", "LimitExceededException") || strings.HasPrefix(code, "TooMany"), plan.LimitExceeded},
	} {
		if line.fits {
			return line.class
		}
	}

	return plan.Unclassified
}

func codeContains(code string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(code, p) })
}

func codeHasSuffix(code string, suffixes ...string) bool {
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(code, s) })
}

func codeIsOneOf(code string, codes ...string) bool { return slices.Contains(codes, code) }

func isThrottleCode(code string) bool {
	_, ok := retry.DefaultThrottleErrorCodes[code]
	return ok
}

type ReasonError string

func (f ReasonError) Error() string { return string(f) }
