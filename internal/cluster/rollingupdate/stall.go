// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

const (
	// bootStageAge is the age from which the console of a machine that has not joined is read.
	bootStageAge = time.Minute
	// bootStageInterval is the time between two readings of one console.
	bootStageInterval = 30 * time.Second
	// maxBootStages is how many consoles are read for one decision.
	maxBootStages = 3
)

// bootStages remembers the boot stages of machines that do not join.
type bootStages struct {
	byMachine map[string]bootStage
}

// bootStage is the last stage of one machine, and when it was read.
type bootStage struct {
	text string
	at   time.Time
}

// addTo adds the boot stages of machines that take long to join.
func (s *bootStages) addTo(ctx context.Context, machines fleet, o *rollout.Observation) {
	if s.byMachine == nil {
		s.byMachine = map[string]bootStage{}
	}

	reads := 0
	for i := range o.Machines {
		m := &o.Machines[i]
		isSlow := !m.NodeReady && m.State == rollout.StateRunning && o.Now.Sub(m.Launched) >= bootStageAge
		if !isSlow {
			continue
		}

		known := s.byMachine[m.ID]
		if o.Now.Sub(known.at) >= bootStageInterval && reads < maxBootStages {
			reads++
			known = bootStage{text: machines.BootStage(ctx, m.ID), at: o.Now}
			s.byMachine[m.ID] = known
		}

		m.BootStage = known.text
	}
}

// addFailed adds the boot stages of machines that have failed and whose stage is not known, and reports whether there
// were any.
func (s *bootStages) addFailed(
	ctx context.Context,
	machines fleet,
	o *rollout.Observation,
	failed []rollout.Machine,
) bool {
	reads := 0
	for _, f := range failed {
		if f.BootStage != "" || reads >= maxBootStages {
			continue
		}

		reads++
		text := machines.BootStage(ctx, f.ID)
		s.byMachine[f.ID] = bootStage{text: text, at: o.Now}
		for i := range o.Machines {
			if o.Machines[i].ID == f.ID {
				o.Machines[i].BootStage = text
			}
		}
	}

	return reads > 0
}

// stallWatch notices when an update waits and nothing changes any more.
type stallWatch struct {
	state string
	since time.Time
}

// check returns why the update must stop: nothing has changed for limit, although nothing is paused or drained. Empty
// if it continues.
func (w *stallWatch) check(o rollout.Observation, d rollout.Decision, limit time.Duration) string {
	var state strings.Builder
	for _, m := range o.Machines {
		fmt.Fprintf(&state, "%s %s %t %s %t %t %s;", m.ID, m.State, m.NodeReady, m.Member, m.Started, m.Prepared, m.HandOverTo)
	}

	goesOn := len(d.Actions) > 0 || d.PausedUntil.After(o.Now)
	if goesOn || state.String() != w.state || w.since.IsZero() {
		w.state = state.String()
		w.since = o.Now
		return ""
	}

	if limit <= 0 || o.Now.Sub(w.since) < limit || len(d.Waiting) == 0 {
		return ""
	}

	return fmt.Sprintf("nothing has changed for %s: %s", limit, strings.Join(d.Waiting, "; "))
}
