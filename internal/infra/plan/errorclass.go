// SPDX-License-Identifier: Apache-2.0

package plan

import "errors"

// ErrorClass says what kind of failure an error is, and so what is to be done about it (D10).
type ErrorClass string

// The classes. Only Throttled and NotReady are tried again, while the walk goes on.
const (
	Unclassified  ErrorClass = ""
	NotFound      ErrorClass = "not found"
	AlreadyExists ErrorClass = "exists"
	Throttled     ErrorClass = "throttled"
	NotReady      ErrorClass = "not yet"
	InUse         ErrorClass = "in use"
	AccessDenied  ErrorClass = "denied"
	LimitExceeded ErrorClass = "limit"
)

// ErrorClassOf returns the class that err or what it wraps says it has.
func ErrorClassOf(err error) ErrorClass {
	var c interface{ Class() ErrorClass }
	if errors.As(err, &c) {
		return c.Class()
	}

	return Unclassified
}
