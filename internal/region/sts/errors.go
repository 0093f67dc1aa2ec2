// SPDX-License-Identifier: Apache-2.0

package sts

import "github.com/slipway-k8s/slipway/internal/region/wire"

// errorCode is a code of STS's errors. The code is one of "Common Error Types" in the STS API reference
// (https://docs.aws.amazon.com/STS/latest/APIReference/CommonErrors.html). The messages are AWS's where tests of moto or
// LocalStack record an answer; the others are the region's. The errors of a role's trust and of web identity tokens are
// in package iam.
type errorCode string

const (
	codeValidation errorCode = "ValidationError"
)

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.Errorf(string(c), format, args...)
}
