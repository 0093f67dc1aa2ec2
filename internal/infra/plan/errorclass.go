// SPDX-License-Identifier: Apache-2.0

package plan

import "errors"

// ErrorClass is the type of an error of a [Cloud], which decides whether the operation is retried and what
// the operator is told.
type ErrorClass string

// The classes. [Applier] retries only Throttled and NotReady, while other operations continue.
const (
	Unclassified  ErrorClass = ""
	NotFound      ErrorClass = "not found"
	AlreadyExists ErrorClass = "exists"
	Throttled     ErrorClass = "throttled" // AWS limits the rate of calls
	NotReady      ErrorClass = "not yet"   // a dependency is not visible or not ready yet
	InUse         ErrorClass = "in use"    // another resource depends on it
	AccessDenied  ErrorClass = "denied"
	LimitExceeded ErrorClass = "limit" // a service quota
)

// ErrorClassOf returns the class of err or of the first error it wraps that has a method Class() ErrorClass.
func ErrorClassOf(err error) ErrorClass {
	var c interface{ Class() ErrorClass }
	if errors.As(err, &c) {
		return c.Class()
	}

	return Unclassified
}
