// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

// TestYearAhead: a leader whose clock is a year ahead takes and tests a backup; then the clocks are right for 30 days. Backups are
// tested as before, and the last verified one is always kept.
func TestYearAhead(t *testing.T) {
	m := &model{plain: t, now: noon, policy: backup.Policy{
		Interval: time.Hour, KeepAll: 24 * time.Hour, KeepDaily: 14, VerifyEvery: 6,
	}}
	for range 2 {
		m.act(m.facts(365*24*time.Hour), 1000, passes)
	}
	if len(m.complete) != 1 || !m.complete[0].Verified() {
		t.Fatalf("%+v", m.complete)
	}
	for range 30 {
		for range 24 {
			m.now = m.now.Add(time.Hour)
			m.settle()
		}
		m.checkTests()
	}
}
