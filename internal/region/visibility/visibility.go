// SPDX-License-Identifier: Apache-2.0

// Package visibility says for how long what is new in the region is not seen, as in AWS, whose services are eventually
// consistent.
package visibility

import "time"

// DefaultTime is for how long a region that people start does not see what is new. In AWS it is usually shorter than a second, and
// can be some seconds.
const DefaultTime = 200 * time.Millisecond

// Delay is how long a change is not seen. The zero value makes changes visible at once.
type Delay struct {
	// Time is how long no call sees a change.
	Time time.Duration
	// Calls is how many calls about a change do not see it, however late they come. It is for tests that count.
	Calls int
}

// IsZero reports whether changes are visible at once.
func (d Delay) IsZero() bool { return d == Delay{} }

// Begin returns the delay of a change that is made now.
func (d Delay) Begin(now time.Time) *Pending { return &Pending{until: now.Add(d.Time), calls: d.Calls} }

// Pending is the rest of the delay of one change.
type Pending struct {
	until time.Time
	calls int
}

// Hides reports whether a call comes too early to see the change, and counts the call. A nil Pending hides nothing.
func (p *Pending) Hides(now time.Time) bool {
	switch {
	case p == nil:
		return false
	case now.Before(p.until):
		return true
	case p.calls > 0:
		p.calls--
		return true
	}

	return false
}

// HasEnded reports whether the change is visible.
func (p *Pending) HasEnded(now time.Time) bool { return !now.Before(p.until) && p.calls == 0 }
