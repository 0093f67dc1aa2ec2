// SPDX-License-Identifier: Apache-2.0

package template

import "github.com/slipway-k8s/slipway/internal/region/wire"

// errorCode is a code of CloudFormation's errors about a template. The code is one of "Common Errors" in the CloudFormation
// API reference (https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/CommonErrors.html). The messages are AWS's
// where tests of moto or LocalStack record an answer; the others are the region's.
type errorCode string

const codeValidation errorCode = "ValidationError"

// ValidationError returns a *wire.Error with the code ValidationError.
func ValidationError(format string, args ...any) error {
	return wire.Errorf(string(codeValidation), format, args...)
}

// FormatError returns a ValidationError whose message begins with "Template format error: ".
func FormatError(format string, args ...any) error {
	return ValidationError("Template format error: "+format, args...)
}

// ErrorInTemplate returns a ValidationError whose message begins with "Template error: ".
func ErrorInTemplate(format string, args ...any) error {
	return ValidationError("Template error: "+format, args...)
}
