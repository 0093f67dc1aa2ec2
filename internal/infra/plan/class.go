// SPDX-License-Identifier: Apache-2.0

package plan

import "errors"

// Class says what kind of failure an error is, and so what is to be done about it (D10).
type Class string

// The classes. Only Throttled and NotYet are tried again, while the walk goes on.
const (
	Other     Class = ""
	NotFound  Class = "not found"
	Exists    Class = "exists"
	Throttled Class = "throttled"
	NotYet    Class = "not yet"
	InUse     Class = "in use"
	Denied    Class = "denied"
	Limit     Class = "limit"
)

// ClassOf returns the class that err or what it wraps says it has.
func ClassOf(err error) Class {
	var c interface{ Class() Class }
	if errors.As(err, &c) {
		return c.Class()
	}
	return Other
}
