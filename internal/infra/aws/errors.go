// SPDX-License-Identifier: Apache-2.0

package aws

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
	// Doing what, such as "create vpc/main".
	Doing string
	class plan.Class
	err   error
}

// Error says what was being done and AWS's own words.
func (e Error) Error() string {
	if api, ok := errors.AsType[smithy.APIError](e.err); ok {
		return e.Doing + ": " + api.ErrorCode() + ": " + api.ErrorMessage()
	}
	return e.Doing + ": " + e.err.Error()
}

// Unwrap returns the SDK's error.
func (e Error) Unwrap() error { return e.err }

// Class implements what [plan.ClassOf] looks for.
func (e Error) Class() plan.Class { return e.class }

// wrap gives err the class of its code; nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return Error{Doing: fmt.Sprintf(format, args...), class: classify(err), err: err}
}

// notYet is a wait that goes on: AWS accepted everything, but something is on its way still.
func notYet(format string, args ...any) error {
	return Error{Doing: "wait", class: plan.NotYet, err: fmt.Errorf(format, args...)}
}

// final keeps err from being tried again: with it the call that has made something would be repeated, and make a second
// one. The next plan finds the first by its tag.
func final(err error, made string) error {
	if err == nil {
		return nil
	}
	return Error{Doing: made + " is made, but", class: plan.Other, err: err}
}

// classify is the one table from AWS's codes to classes; the first line that fits counts.
func classify(err error) plan.Class {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return plan.Other
	}
	code, text := api.ErrorCode(), api.ErrorMessage()
	for _, line := range []struct {
		fits  bool
		class plan.Class
	}{
		{throttled(code), plan.Throttled},
		// A new profile takes seconds to be seen by EC2.
		{strings.Contains(strings.ToLower(text), "instance profile") && (strings.HasPrefix(code, "Invalid") || code == "ValidationError"), plan.NotYet},
		{contains(code, "AlreadyExists", "Duplicate"), plan.Exists},
		{ends(code, "NotFound", "NotFoundException") || oneOf(code, "NoSuchEntity"), plan.NotFound},
		{contains(code, "InUse") || oneOf(code, "DependencyViolation", "DeleteConflict", "ScalingActivityInProgress", "InvalidAddress.Locked", "ResourceContention"), plan.InUse},
		{oneOf(code, "IncorrectState", "IncorrectInstanceState", "ConcurrentModification", "OperationInProgress", "IncorrectModificationState"), plan.NotYet},
		{oneOf(code, "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure"), plan.Denied},
		{ends(code, "LimitExceeded", "LimitExceededException") || strings.HasPrefix(code, "TooMany"), plan.Limit},
	} {
		if line.fits {
			return line.class
		}
	}
	return plan.Other
}

func contains(code string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(code, p) })
}

func ends(code string, suffixes ...string) bool {
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(code, s) })
}

func oneOf(code string, codes ...string) bool { return slices.Contains(codes, code) }

func throttled(code string) bool {
	_, ok := retry.DefaultThrottleErrorCodes[code]
	return ok
}
