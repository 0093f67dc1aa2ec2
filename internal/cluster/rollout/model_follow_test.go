// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// follow lets a control-plane machine take the update lock, as its agent does: if nobody has it, and all slots serve.
func (w *world) follow(t *rapid.T) {
	w.changingTicks--
	if w.changingTicks <= 0 {
		w.changing = ""
	}

	if w.changing != "" || w.isHeld || w.apiDown > 0 || rapid.IntRange(0, 9).Draw(t, "follow") > 0 {
		return
	}

	var candidates []string
	for _, g := range w.groups {
		if g.Slot == "" {
			continue
		}

		i := slices.IndexFunc(w.machines, func(m rollout.Machine) bool {
			return m.Slot == g.Slot && m.State == rollout.StateRunning && m.NodeReady && m.Member == rollout.MemberHealthy
		})
		if i < 0 {
			return
		}

		candidates = append(candidates, w.machines[i].ID)
	}

	for _, m := range w.machines {
		if m.Slot != "" && (m.Started || m.Detached) && m.State == rollout.StateRunning {
			t.Fatalf("the lock is free although the replacement of %s has begun", m.ID)
		}
	}

	w.changing = rapid.SampledFrom(candidates).Draw(t, "follower")
	w.changingTicks = rapid.IntRange(1, 20).Draw(t, "follows for")
}
