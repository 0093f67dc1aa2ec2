// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"slices"
	"time"
)

// freshReport is how long after its last change the report of another machine counts.
const freshReport = time.Minute

// ReportWatch is what a machine remembers of the reports of the other slots' machines during one loss of the quorum. Clocks are not
// compared. Its zero value has read none.
type ReportWatch struct {
	seen map[string]seenReport
}

// seenReport is what a machine remembers of the reports of another slot's machine.
type seenReport struct {
	// session and count are those of the newest report.
	session string
	count   int
	// changedAt is when this machine saw a newer report than before; zero until it has.
	changedAt time.Time
	// former are the sessions of earlier processes of the slot's machines.
	former []string
}

// Hear takes note of the signed report r of another slot's machine, also in own, which is this machine's report, and returns whether it counts:
// it changes, and was made during this loss of the quorum. Somebody who may write to the machine store can put earlier reports back, but
// none that has heard of the session of own, and not in another order than that in which they were made.
func (w *ReportWatch) Hear(own *QuorumReport, slot string, r QuorumReport, now time.Time) bool {
	if w.seen == nil {
		w.seen = map[string]seenReport{}
		own.Heard = map[string]string{}
	}

	own.Heard[slot] = r.Session
	seen, isKnown := w.seen[slot]
	if !isKnown {
		w.seen[slot] = seenReport{session: r.Session, count: r.Count}
		return false // it may be old
	}

	isAnswer := r.Session != "" && r.Heard[own.Slot] == own.Session
	if !isAnswer || seen.isOlder(r) {
		return false
	}

	w.seen[slot] = seen.update(r, now)
	changedAt := w.seen[slot].changedAt

	return !changedAt.IsZero() && now.Sub(changedAt) <= freshReport
}

// isOlder reports whether a report was made before the newest one.
func (s seenReport) isOlder(r QuorumReport) bool {
	if r.Session == s.session {
		return r.Count < s.count
	}

	return slices.Contains(s.former, r.Session)
}

// update returns what is remembered after a report that is not older.
func (s seenReport) update(r QuorumReport, now time.Time) seenReport {
	if r.Session != s.session {
		s.former = append(slices.Clone(s.former), s.session)
		s.session = r.Session
		s.count = 0
	}

	if r.Count > s.count {
		s.count = r.Count
		s.changedAt = now
	}

	return s
}
