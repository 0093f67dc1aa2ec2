// SPDX-License-Identifier: Apache-2.0

package health

import "strings"

// Change is a check that got another result between two reports.
type Change struct {
	// Check with its new result, or with its last one if Resolved is set.
	Check Check
	// Resolved is set if the check is OK now, or if what it checked is gone.
	Resolved bool
}

// Changes returns what is different in the report after, most severe first: problems that are new or have
// another cause, then those that are resolved. Numbers in causes, such as ages, are not compared.
func Changes(before, after Report) []Change {
	was := problemsOf(before)
	is := problemsOf(after)
	var out []Change
	for _, c := range after.Checks {
		old, known := was[keyOf(c)]
		if c.Severity != OK && (!known || old.Severity != c.Severity || withoutDigits(old.Cause) != withoutDigits(c.Cause)) {
			out = append(out, Change{Check: c})
		}
	}

	for _, c := range before.Checks {
		if _, still := is[keyOf(c)]; c.Severity != OK && !still {
			out = append(out, Change{Check: c, Resolved: true})
		}
	}

	return out
}

// checkKey identifies a check. A machine may have several problems at once, which their component, the start of
// the cause, tells apart.
type checkKey struct{ kind, name, component string }

func keyOf(c Check) checkKey {
	k := checkKey{kind: c.Kind, name: c.Name}
	if c.Kind == KindMachine || c.Kind == KindNode {
		k.component, _, _ = strings.Cut(withoutDigits(c.Cause), ":")
	}

	return k
}

func problemsOf(r Report) map[checkKey]Check {
	out := map[checkKey]Check{}
	for _, c := range r.Checks {
		if c.Severity != OK {
			out[keyOf(c)] = c
		}
	}

	return out
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}

		return r
	}, s)
}
