// SPDX-License-Identifier: Apache-2.0

package diag

import "errors"

// HintedError is an error with a hint for the user. The command line prints each hint on a separate line.
type HintedError struct {
	// Err is the error.
	Err error
	// Hint is how to fix it, in the imperative.
	Hint string
}

// Error returns the message without the hint.
func (h *HintedError) Error() string { return h.Err.Error() }

// Unwrap returns the error that the hint belongs to.
func (h *HintedError) Unwrap() error { return h.Err }

// WithHint returns err with a hint; nil if err is nil.
func WithHint(err error, hint string) error {
	if err == nil {
		return nil
	}

	return &HintedError{Err: err, Hint: hint}
}

// Hints returns the hints of err and of the errors that it wraps, outermost first.
func Hints(err error) []string {
	var out []string
	for {
		var h *HintedError
		if !errors.As(err, &h) {
			return out
		}

		out = append(out, h.Hint)
		err = h.Err
	}
}
