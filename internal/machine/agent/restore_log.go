// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// Limits of restorations.
const (
	// contestedChanges is the number of changes of one thing within contestedWindow from which on
	// another program is assumed to change it again and again.
	contestedChanges = 5
	contestedWindow  = time.Minute
	// contestedPause is the time between two restorations of a contested thing. It is below the 15
	// seconds in which Slipway promises a restoration.
	contestedPause = 10 * time.Second
	// restoredVisible is how long a restoration is reported.
	restoredVisible = 10 * time.Minute
)

// restoration is the history of one owned thing: a path, a kernel setting or a unit.
type restoration struct {
	// changes by others that were noticed, oldest first; only those of the last contestedWindow.
	changes []time.Time
	// what happened last, such as "was deleted".
	what string
	// restoredAt is when it was restored last; zero if it never was.
	restoredAt time.Time
	// failure of the last attempt to restore it; empty if it succeeded.
	failure string
}

// restoreLog remembers what others changed. The zero value is ready to use. It is not safe for
// concurrent use.
type restoreLog struct{ by map[string]*restoration }

// mayRestore reports whether name may be restored now. A contested thing is not restored at each
// look, so that the agent and another program do not keep the machine busy.
func (l *restoreLog) mayRestore(name string, now time.Time) bool {
	r := l.by[name]

	return r == nil || !r.isContested(now) || now.Sub(r.restoredAt) >= contestedPause
}

// recordChange adds a change by somebody else and the result of the restoration.
func (l *restoreLog) recordChange(name, what string, err error, now time.Time) {
	if l.by == nil {
		l.by = map[string]*restoration{}
	}

	r := l.by[name]
	if r == nil {
		r = &restoration{}
		l.by[name] = r
	}

	r.what = what
	r.restoredAt = now
	r.changes = append(slices.DeleteFunc(r.changes, func(at time.Time) bool {
		return now.Sub(at) >= contestedWindow
	}), now)
	r.failure = ""
	if err != nil {
		r.failure = err.Error()
	}
}

// clearFailures forgets the failures of things that are right again, and returns their names, sorted.
func (l *restoreLog) clearFailures(damaged map[string]bool) []string {
	var out []string
	for name, r := range l.by {
		if r.failure != "" && !damaged[name] {
			r.failure = ""
			out = append(out, name)
		}
	}

	slices.Sort(out)

	return out
}

func (r *restoration) isContested(now time.Time) bool {
	recent := 0
	for _, at := range r.changes {
		if now.Sub(at) < contestedWindow {
			recent++
		}
	}

	return recent >= contestedChanges
}

// newCondition returns what is to be reported: failed restorations, then what another program changes again and
// again, then what was restored in the last minutes.
func (l *restoreLog) newCondition(now time.Time) report.Condition {
	var failed, contested, restored []string
	names := slices.SortedFunc(maps.Keys(l.by), func(a, b string) int {
		return cmp.Or(l.by[b].restoredAt.Compare(l.by[a].restoredAt), cmp.Compare(a, b))
	})

	for _, name := range names {
		r := l.by[name]
		switch {
		case r.failure != "":
			failed = append(failed, fmt.Sprintf("%s %s and cannot be restored: %s", name, r.what, r.failure))
		case r.isContested(now):
			contested = append(contested, fmt.Sprintf("%s changed %d times in 1 min by someone else (it %s)",
				name, len(r.changes), r.what))
		case now.Sub(r.restoredAt) < restoredVisible:
			restored = append(restored, fmt.Sprintf("%s %s; restored at %s", name, r.what,
				r.restoredAt.UTC().Format(time.TimeOnly)))
		default:
			delete(l.by, name)
		}
	}

	c := report.Condition{Component: report.OwnedFiles, State: report.OK}
	switch {
	case len(failed) > 0:
		c.State = report.Failed
		c.Next = "fix what the message names, or terminate the machine: its group replaces it"
	case len(contested) > 0:
		c.State = report.Warning
		c.Next = "find the program that changes it, and stop it: Slipway restores it every " +
			contestedPause.String()
	case len(restored) > 0:
		c.State = report.Warning
		c.Next = "nothing if the change was a mistake: this message ends after 10 minutes; to change it for good, change the " +
			"manifest and run slipway apply"
	}

	c.Cause = joinCauses(append(append(failed, contested...), restored...))

	return c
}

// joinCauses joins at most three causes: a report has to stay short.
func joinCauses(causes []string) string {
	const most = 3
	if len(causes) > most {
		causes = append(slices.Clone(causes[:most]), fmt.Sprintf("and %d more", len(causes)-most))
	}

	return strings.Join(causes, "; ")
}
