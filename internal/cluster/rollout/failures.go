// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"time"
)

// failedMachines returns the machines with the newest launch template that did not join in time, or that have served and
// do not serve any more for as long.
func (u update) failedMachines() []Machine {
	var out []Machine
	for _, g := range u.selectedGroups() {
		for _, m := range u.machinesOf(g) {
			if u.isJoining(g, m) && u.observation.Now.Sub(u.joiningSince(g, m)) >= u.options.JoinTimeout {
				out = append(out, m)
			}
		}
	}

	return out
}

// isJoining reports whether a machine is up to date and does not serve yet.
func (u update) isJoining(g Group, m Machine) bool { return !u.isOutdated(g, m) && !m.IsServing() }

// tooManyFailures reports whether an update with these failed machines must stop: a control plane after one.
func (u update) tooManyFailures(failed []Machine) bool {
	if slices.ContainsFunc(failed, func(m Machine) bool { return m.Slot != "" }) {
		return true
	}

	count := map[string]int{}
	for _, m := range failed {
		count[m.Group]++
		if count[m.Group] >= max(1, u.groupOf(m).Policy.MaxFailures) {
			return true
		}
	}

	return false
}

// describeFailure tells why an update stops: further replacements would most likely fail as well.
func (u update) describeFailure(failed []Machine) string {
	m := failed[0]
	text := fmt.Sprintf(
		"machine %s of group %s has the newest launch template and is not Ready, %s after its launch",
		m.ID,
		u.groupOf(m).name(),
		u.observation.Now.Sub(m.Launched).Round(time.Second),
	)
	if m.mayRunPods() && m.DownSince.After(m.Launched) {
		text = fmt.Sprintf(
			"machine %s of group %s has the newest launch template and does not serve for %s",
			m.ID,
			u.groupOf(m).name(),
			u.observation.Now.Sub(m.DownSince).Round(time.Second),
		)
	}

	if m.BootStage != "" {
		text += "; it stopped at " + m.BootStage
	}

	if more := len(failed) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}

	return text
}

// isInProgress reports whether something will change by itself: a replacement that has begun, or a machine that
// still has time to join.
func (u update) isInProgress() bool {
	for _, g := range u.selectedGroups() {
		machines := u.machinesOf(g)
		inGroup := 0
		for _, m := range machines {
			young := u.observation.Now.Sub(u.joiningSince(g, m)) < u.options.JoinTimeout
			if m.Started || u.isJoining(g, m) && young {
				return true
			}

			if !m.Detached {
				inGroup++
			}
		}

		if inGroup < g.Size {
			return true
		}
	}

	return false
}

// decideStopping completes the replacements that have begun, and begins no other.
func (u update) decideStopping() Decision {
	var d Decision
	for _, g := range u.selectedGroups() {
		if g.isControlPlane() {
			u.stopSlot(g, &d)
			continue
		}

		for _, m := range u.machinesOf(g) {
			if !m.Started {
				continue
			}

			if waiting := u.reasonToSpare(m); waiting != "" {
				d.Waiting = append(d.Waiting, waiting)
				continue
			}

			d.Actions = append(d.Actions, u.nextAction(g, m))
		}
	}

	return d
}

// stopSlot adds the next step of a slot whose replacement has begun. If another slot is broken, the next run decides
// about it.
func (u update) stopSlot(g Group, d *Decision) {
	outdated := u.outdatedMachines(g)
	if len(outdated) == 0 || !hasBegun(outdated[0]) {
		return
	}

	s := u.nextSlotStep(g, outdated)
	broken := u.otherBrokenSlot(g.Slot)

	switch {
	case u.observation.Changing != "":
		d.Waiting = append(d.Waiting, describeApplying(u.observation.Changing))
	case len(u.observation.Alarms) > 0:
		d.Waiting = append(d.Waiting, describeAlarms(u.observation.Alarms))
	case s.waiting != "":
		d.Waiting = append(d.Waiting, s.waiting)
	case broken == "" || s.action.Machine.Member == MemberLost:
		d.Actions = append(d.Actions, s.action)
	}
}
