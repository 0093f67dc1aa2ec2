// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"slices"
	"syscall"

	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// errorHints returns the hints of err. An error of an AWS call without a hint gets one if the endpoint
// refuses connections or the credentials: the environment of a shell outlives the local region that it was
// set for.
func errorHints(err error) []string {
	hints := diag.Hints(err)
	if _, call := errors.AsType[*smithy.OperationError](err); len(hints) > 0 || !call {
		return hints
	}

	if errors.Is(err, syscall.ECONNREFUSED) {
		return []string{
			`nothing answers there: see AWS_ENDPOINT_URL; for the local region: slipway region start, then eval "$(slipway region env)"`,
		}
	}

	if api, ok := errors.AsType[smithy.APIError](err); ok &&
		slices.Contains(credentialErrorCodes(), api.ErrorCode()) {
		return []string{
			`check AWS_PROFILE or AWS_ACCESS_KEY_ID; each local region has keys of its own: eval "$(slipway region env)"`,
		}
	}

	return nil
}

// credentialErrorCodes returns the error codes of AWS services for invalid credentials.
func credentialErrorCodes() []string {
	return []string{
		"InvalidAccessKeyId",
		"SignatureDoesNotMatch",
		"InvalidClientTokenId",
		"UnrecognizedClientException",
		"AuthFailure",
		"ExpiredToken",
	}
}
