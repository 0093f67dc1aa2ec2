// SPDX-License-Identifier: Apache-2.0

package template

import "github.com/slipway-k8s/slipway/internal/region/wire"

func ValidationError(format string, args ...any) error {
	return wire.Errorf("ValidationError", format, args...)
}

func FormatError(format string, args ...any) error {
	return ValidationError("Template format error: "+format, args...)
}

func TemplateError(format string, args ...any) error {
	return ValidationError("Template error: "+format, args...)
}
