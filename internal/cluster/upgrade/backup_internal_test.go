// SPDX-License-Identifier: Apache-2.0

package upgrade

import "testing"

// TestNeedsBackup: whatever changes the control plane needs a backup, unless the operator wants none.
func TestNeedsBackup(t *testing.T) {
	steps := Proposal{Steps: []Step{{Type: StepWrite}}}
	for name, c := range map[string]struct {
		proposal   Proposal
		skip, want bool
	}{
		"an upgrade":              {steps, false, true},
		"without a backup":        {steps, true, false},
		"only replacing machines": {Proposal{Outdated: 3}, false, false},
	} {
		if got := needsBackup(c.proposal, c.skip); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
