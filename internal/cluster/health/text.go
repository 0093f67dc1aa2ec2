// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"strings"
	"time"
)

// Line is a line of a report as text.
type Line struct {
	// Severity of what the line is about.
	Severity Severity
	// Text without a line feed.
	Text string
}

// Lines returns the report as text, for people: each problem with its cause and its next step, the most
// severe first, then how many checks of each kind are OK, and at last whether the cluster is healthy.
func (r Report) Lines(cluster string) []Line {
	var out []Line
	add := func(severity Severity, format string, args ...any) {
		out = append(out, Line{Severity: severity, Text: fmt.Sprintf(format, args...)})
	}

	for _, c := range r.Checks {
		if c.Severity == OK {
			continue
		}

		add(c.Severity, "%s", c.Line(r.Time))
		switch {
		case c.CausedBy != "":
			add(c.Severity, "         because of: %s", c.CausedBy)
		case c.Hint != "":
			add(c.Severity, "         next: %s", c.Hint)
		}
	}

	for _, c := range r.Checks {
		if c.Severity == OK && c.hasOwnLine() {
			add(OK, "%s", c.Line(r.Time))
		}
	}

	if counts := r.countOK(); counts != "" {
		add(OK, "%-8s %s", "OK", counts)
	}

	for _, unread := range r.Unread {
		add(Warning, "NOTE     not checked: %s", unread)
	}

	if r.Valid {
		add(OK, "%s", "cluster "+cluster+" is healthy"+r.countWorst(" (", ")"))
	} else {
		add(Failed, "%s", "cluster "+cluster+" is not healthy: "+r.countWorst("", ""))
	}

	return out
}

// hasOwnLine reports whether an OK check is printed instead of counted: etcd's backups always, and machines and members
// while the API does not answer, when nothing else tells how they are.
func (c Check) hasOwnLine() bool {
	return c.Cause != "" && (c.Kind == KindMachine || c.Kind == KindEtcd)
}

// Line returns the check as one line of text, with how long it lasts at now.
func (c Check) Line(now time.Time) string {
	since := ""
	if age := now.Sub(c.Since); !c.Since.IsZero() && age >= 0 {
		since = ", for " + formatAge(age)
	}

	return fmt.Sprintf("%-8s %s %s: %s%s", strings.ToUpper(string(c.Severity)), c.Kind, c.Name, c.Cause, since)
}

// countOK counts the OK checks of each kind: "5 machines, 3 etcd".
func (r Report) countOK() string {
	var out []string
	for _, kind := range kinds() {
		n := 0
		for _, c := range r.Checks {
			if c.Kind == kind && c.Severity == OK && !c.hasOwnLine() {
				n++
			}
		}

		if n > 0 {
			out = append(out, fmt.Sprintf("%s %d", kind, n))
		}
	}

	return strings.Join(out, ", ")
}

// countWorst counts the checks of each severity that is not OK: "1 critical, 2 failed". It returns an empty
// text if there are none.
func (r Report) countWorst(before, after string) string {
	var out []string
	for _, severity := range severities() {
		n := 0
		for _, c := range r.Checks {
			if c.Severity == severity {
				n++
			}
		}

		if n > 0 && severity != OK {
			word := string(severity)
			if severity == Warning && n > 1 {
				word = "warnings"
			}

			out = append(out, fmt.Sprintf("%d %s", n, word))
		}
	}

	if len(out) == 0 {
		return ""
	}

	return before + strings.Join(out, ", ") + after
}
