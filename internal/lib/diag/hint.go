// SPDX-License-Identifier: Apache-2.0

package diag

import "errors"

// HintedError is an error that knows how to mend itself. The command line prints Hint on a line of its own.
type HintedError struct { //nolint:errname // reads as what it is: an error with a hint
	Err  error
	Hint string
}

// Error is the message without the hint.
func (h *HintedError) Error() string { return h.Err.Error() }

// Unwrap returns the error that the hint is for.
func (h *HintedError) Unwrap() error { return h.Err }

// WithHint returns err with hint; nil stays nil.
func WithHint(err error, hint string) error {
	if err == nil {
		return nil
	}

	return &HintedError{Err: err, Hint: hint}
}

// Hints returns the hints of err and of the errors it wraps, outermost first.
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
