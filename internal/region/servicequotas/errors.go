// SPDX-License-Identifier: Apache-2.0

package servicequotas

import "github.com/slipway-k8s/slipway/internal/region/wire"

// errorCode is a code of the errors of Service Quotas. The codes are those of the "Errors" of ListServiceQuotas and
// GetServiceQuota in the API reference
// (https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_ListServiceQuotas.html). The messages begin as
// the descriptions of the errors there, or tell the limit of a page.
type errorCode string

const (
	codeIllegalArgument        errorCode = "IllegalArgumentException"
	codeInvalidPaginationToken errorCode = "InvalidPaginationTokenException"
	codeNoSuchResource         errorCode = "NoSuchResourceException"
)

// message returns AWS's fixed message of a code; empty if the message depends on the request.
func (c errorCode) message() string {
	return map[errorCode]string{
		codeInvalidPaginationToken: "Invalid input was provided for NextToken.",
	}[c]
}

// newError returns the error of a code with its fixed message.
func newError(c errorCode) *wire.Error { return newErrorf(c, "%s", c.message()) }

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.Errorf(string(c), format, args...)
}
