// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/plan"
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
	var api smithy.APIError
	if errors.As(e.err, &api) {
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

// classify is the one table from AWS's codes to classes.
func classify(err error) plan.Class {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return plan.Other
	}
	code, text := api.ErrorCode(), api.ErrorMessage()
	switch {
	case throttled(code):
		return plan.Throttled
	case strings.Contains(text, "nstance profile") || strings.Contains(text, "nstance Profile"), strings.HasPrefix(code, "InvalidIamInstanceProfile"):
		return plan.NotYet // a new profile takes seconds to be seen by EC2
	case strings.Contains(code, "AlreadyExists") || strings.Contains(code, "Duplicate"):
		return plan.Exists
	case strings.HasSuffix(code, ".NotFound") || strings.HasSuffix(code, "NotFoundException") || strings.HasSuffix(code, "NotFound") ||
		oneOf(code, "NoSuchEntity", "NatGatewayNotFound", "InvalidGroup.NotFound"):
		return plan.NotFound
	case oneOf(code, "DependencyViolation", "VolumeInUse", "ResourceInUse", "ResourceInUseFault", "DeleteConflict", "ScalingActivityInProgress",
		"InvalidIPAddress.InUse", "InvalidAddress.Locked", "ResourceContention"):
		return plan.InUse
	case oneOf(code, "IncorrectState", "IncorrectInstanceState", "ConcurrentModification", "OperationInProgress", "IncorrectModificationState"):
		return plan.NotYet
	case oneOf(code, "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure"):
		return plan.Denied
	case strings.HasSuffix(code, "LimitExceeded") || strings.HasSuffix(code, "LimitExceededException") || strings.HasPrefix(code, "TooMany"):
		return plan.Limit
	}
	return plan.Other
}

func oneOf(code string, codes ...string) bool { return slices.Contains(codes, code) }

func throttled(code string) bool {
	_, ok := retry.DefaultThrottleErrorCodes[code]
	return ok
}

// retryer repeats a call at once only where nothing can have happened: AWS throttled it. A call whose answer got lost is
// not repeated, as a second VPC would come of it: the next plan finds what the first one made by its tag.
func retryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = 5
		o.Retryables = []retry.IsErrorRetryable{retry.RetryableErrorCode{Codes: retry.DefaultThrottleErrorCodes}}
		o.RateLimiter = ratelimit.None // plan.Apply limits retries by time
	})
}
