// SPDX-License-Identifier: Apache-2.0

package template

import "github.com/slipway-k8s/slipway/internal/region/wire"

// ValidationError returns a *wire.Error with the code ValidationError.
func ValidationError(format string, args ...any) error {
	return wire.Errorf("ValidationError", format, args...)
}

// FormatError returns a ValidationError whose message begins with "Template format error: ".
func FormatError(format string, args ...any) error {
	return ValidationError("Template format error: "+format, args...)
}

// ErrorInTemplate returns a ValidationError whose message begins with "Template error: ".
func ErrorInTemplate(format string, args ...any) error {
	return ValidationError("Template error: "+format, args...)
}
