// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/history"
)

// TestLimitUnder: a limit is that of the table of benchmarks on a computer with as much other work, and grows with more.
func TestLimitUnder(t *testing.T) {
	for load, want := range map[float64]time.Duration{
		0:  8 * time.Second,
		12: 8 * time.Second,
		18: 12 * time.Second,
		36: 24 * time.Second,
	} {
		if have := history.LimitUnder(load, 8*time.Second); have != want {
			t.Errorf("load %g: %s, want %s", load, have, want)
		}
	}
}

// TestLimitOfShortForm: the short form runs on computers whose speed is not known.
func TestLimitOfShortForm(t *testing.T) {
	const goal = 8 * time.Second
	long := history.Limit(goal, true)
	if short := history.Limit(goal, false); long < goal || short < 3*goal {
		t.Errorf("%s in the long form, %s in the short one", long, short)
	}
}
