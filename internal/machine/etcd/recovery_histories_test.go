// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// isWhole reports whether all members work in one cluster, with every write that is not lost.
func (w *lostQuorum) isWhole() bool {
	first := w.volumes[w.published[0]]
	for _, slot := range w.published {
		if v := w.volumes[slot]; !w.running[slot] || v.identity == "" || v.identity != first.identity || v.generation != w.number() {
			return false
		}
	}
	members := w.members[first.identity]
	if len(members) != len(w.published) || slices.ContainsFunc(members, func(e etcd.Member) bool { return e.Learner }) {
		return false
	}
	leader := w.lead(first.identity, w.published)
	have := writesOf(w.logs[leader])
	for id := range w.acked {
		if !have[id] {
			w.Fatalf("write %d is lost", id)
		}
	}
	return true
}

// isHopeless reports whether no data is left that could be recovered.
func (w *lostQuorum) isHopeless() bool {
	if w.newestBackup() != nil {
		return false
	}
	return !slices.ContainsFunc(w.slots, func(slot string) bool { return w.hasVotersData(slot) && !w.isOut(slot) })
}

// TestRecoveryHistories plays random histories of lost machines, volumes and zones. There are never two clusters that accept
// writes. Nothing is recovered while a majority of the members has data, or while a member works. No write is lost that a volume or
// a good backup still has; what only a learner has copied does not count. Meanwhile the control plane becomes smaller, slots have two
// machines, and elections take time. When faults stop, all members become whole again.
func TestRecoveryHistories(t *testing.T) {
	histories, recovered, shrunk, moves := 0, 0, 0, 0
	reasons := map[etcd.RecoveryStepType]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := newLostQuorum(t)
		w.advance()
		if rapid.IntRange(0, 3).Draw(t, "young") > 0 {
			w.takeBackup()
		}
		for range rapid.IntRange(5, 60).Draw(t, "ticks") {
			if rapid.IntRange(0, 3).Draw(t, "calm") == 0 {
				w.fault(rapid.SampledFrom(w.slots).Draw(t, "slot"))
			}
			w.live()
		}
		w.heal()
		histories++
		recovered += w.recovered
		moves += w.moves
		if len(w.published) < len(w.slots) {
			shrunk++
		}
		for step, n := range w.reasons {
			reasons[step] += n
		}
	})
	t.Logf("COUNT %d histories of lost quorums, %d with slots that left, %d recoveries, %d volumes moved between two machines of a slot, steps %v",
		histories, shrunk, recovered, moves, reasons)
}
