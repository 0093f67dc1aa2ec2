// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"time"
)

// brokenPatience is how long a machine must not serve until it is replaced as a broken one. A kubelet that restarts, or
// that has lost its connection for a moment, is Ready again before.
const brokenPatience = 2 * time.Minute

// mayRunPods reports whether pods may serve on a machine: its node was Ready at some time.
func (m Machine) mayRunPods() bool { return m.NodeName != "" && !m.NeverReady }

// downSince returns since when a machine does not serve. If nobody knows, a machine whose node is Ready counts from now,
// and others count from their launch.
func (u update) downSince(m Machine) time.Time {
	if m.DownSince.IsZero() && m.NodeReady {
		return u.observation.Now
	}

	return laterOf(m.Launched, m.DownSince)
}

// isDoubtful reports whether a machine that does not serve may do so again in a moment.
func (u update) isDoubtful(m Machine) bool {
	return m.mayRunPods() && !m.IsServing() && u.observation.Now.Sub(u.downSince(m)) < brokenPatience
}

// reasonToSpare returns why a machine that does not serve is left alone for now; empty if it is not. A drain that has
// begun continues.
func (u update) reasonToSpare(m Machine) string {
	switch {
	case !m.mayRunPods() || m.IsServing() || m.Drained:
		return ""
	case u.isDoubtful(m) && m.Started:
		return ""
	case u.isDoubtful(m):
		return fmt.Sprintf("%s: machine %s is replaced if it does not serve again within %s",
			u.groupOf(m).name(), m.ID, brokenPatience)
	case !m.NodeReady:
		return u.describeOutage(m.Zone)
	}

	return ""
}

// describeOutage tells that most nodes of a zone are not Ready; empty if they are. The cause is probably not the machines
// then: their pods may serve although the API server does not hear of them.
func (u update) describeOutage(zone string) string {
	broken := 0
	all := 0
	for _, m := range u.observation.Machines {
		if m.Zone != zone || m.State != StateRunning || !m.mayRunPods() {
			continue
		}

		all++
		if !m.NodeReady {
			broken++
		}
	}

	if broken <= 1 || 2*broken <= all {
		return ""
	}

	return fmt.Sprintf("%d of %d nodes in zone %s are not Ready: probably the zone has an outage", broken, all, zone)
}

// describeOutages tells about the first zone with an outage; empty if there is none.
func (u update) describeOutages() string {
	for _, m := range u.observation.Machines {
		if text := u.describeOutage(m.Zone); text != "" {
			return text
		}
	}

	return ""
}
