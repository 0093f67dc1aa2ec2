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

// TestLimitOfSlowComputers: a slow computer has more time, and a fast one has not less.
func TestLimitOfSlowComputers(t *testing.T) {
	const goal = 8 * time.Second
	for slowness, want := range map[float64]time.Duration{0: goal, 0.5: goal, 1: goal, 1.5: 12 * time.Second, 3: 24 * time.Second} {
		least, most := want, history.LimitUnder(1000, want)
		if have := history.Limit(goal, slowness); have < least || have > most {
			t.Errorf("slowness %g: %s, want %s without load", slowness, have, want)
		}
	}
}
