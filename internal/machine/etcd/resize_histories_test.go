// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSizeHistories drives a control plane through changes of its size while machines, volumes and the network fail, views are
// old and commands are killed: no member that is needed leaves, no machine ends while its member votes, members join one at a
// time, and once faults stop the control plane has the wished size.
func TestSizeHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SampledFrom([]int{1, 3, 5})
		w := newSizeWorld(sizes.Draw(t, "size"))
		anyMachine := func(do func(slot string)) func(*rapid.T) {
			return func(t *rapid.T) {
				do(rapid.SampledFrom(slices.Sorted(maps.Keys(w.machines))).Draw(t, "slot"))
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"converge":  func(t *rapid.T) { anyMachine(func(slot string) { w.converge(t, slot) })(t) },
			"deliver":   func(t *rapid.T) { anyMachine(func(slot string) { w.deliver(t, slot) })(t) },
			"tasks":     func(t *rapid.T) { anyMachine(func(slot string) { w.tasks(t, slot) })(t) },
			"follow":    anyMachine(w.follow),
			"look":      anyMachine(w.look),
			"resize":    func(t *rapid.T) { anyMachine(func(slot string) { w.resize(t, slot) })(t) },
			"command":   func(t *rapid.T) { w.command(t) },
			"wish":      func(t *rapid.T) { w.wished = possibleSlots()[:sizes.Draw(t, "size")] },
			"settled":   func(t *rapid.T) { w.pass(t) },
			"clear":     func(t *rapid.T) { anyMachine(func(slot string) { w.clear(t, slot) })(t) },
			"cleared":   func(t *rapid.T) { anyMachine(func(slot string) { w.cleared(t, slot) })(t) },
			"wait":      func(t *rapid.T) { w.wait(t, rapid.IntRange(1, 150).Draw(t, "minutes")) },
			"crash":     anyMachine(w.crash),
			"partition": anyMachine(func(slot string) { w.machines[slot].isolated = !w.machines[slot].isolated }),
			"lose":      anyMachine(w.lose),
			"damage":    func(t *rapid.T) { anyMachine(func(slot string) { w.damage(t, slot) })(t) },
			"reject":    func(t *rapid.T) { anyMachine(func(slot string) { w.reject(t, slot) })(t) },
			"":          w.check,
		})
		if !w.broken {
			w.settle(t)
		}
	})
}
