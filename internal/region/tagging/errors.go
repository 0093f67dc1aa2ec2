// SPDX-License-Identifier: Apache-2.0

package tagging

import "github.com/slipway-k8s/slipway/internal/region/wire"

// errorCode is a code of the errors of the Resource Groups Tagging API. The code is one of the "Errors" of GetResources
// in the API reference (https://docs.aws.amazon.com/resourcegroupstagging/latest/APIReference/API_GetResources.html).
// The reference describes when an error occurs and not its message.
type errorCode string

const (
	codeInvalidParameter errorCode = "InvalidParameterException"
)

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.Errorf(string(c), format, args...)
}
