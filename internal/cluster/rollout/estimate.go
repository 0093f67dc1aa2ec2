// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// DefaultReplaceTime is the estimated time from the drain of a machine until its replacement serves, as long as
// no replacement was measured.
const DefaultReplaceTime = 90 * time.Second

// Estimate returns how long an update will take if each replacement takes perMachine: the control plane's
// machines one after another, then all groups of workers at once, in batches.
func Estimate(o Observation, opts Options, perMachine time.Duration) time.Duration {
	u := update{observation: o, options: opts}
	controlPlane := time.Duration(0)
	workers := time.Duration(0)
	for _, g := range u.selectedGroups() {
		n := u.countUnfinished(g)
		if g.isControlPlane() {
			controlPlane += time.Duration(n) * (perMachine + g.Policy.PauseBetween)
			continue
		}

		workers = max(workers, time.Duration(countBatches(g, n))*(perMachine+g.Policy.PauseBetween))
	}

	return controlPlane + workers
}

// countUnfinished counts the machines of a group that are outdated, or that are up to date and do not serve.
func (u update) countUnfinished(g Group) int {
	n := 0
	for _, m := range u.machinesOf(g) {
		if u.isOutdated(g, m) || !m.IsServing() {
			n++
		}
	}

	return n
}

// countBatches returns in how many batches n machines of a group are replaced.
func countBatches(g Group, n int) int {
	if n == 0 {
		return 0
	}

	size := max(1, g.Policy.maxMissing()+g.Policy.MaxSurge)
	n -= min(max(1, g.Policy.Canary), n)

	return 1 + (n+size-1)/size
}
