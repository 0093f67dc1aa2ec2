// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"time"
)

const (
	// launchPatience is how long a group may take to launch a machine in addition. EC2 takes seconds.
	launchPatience = 3 * time.Minute
	// handOverPatience is how long a machine may take until it has handed over its slot, which takes some 10 s.
	handOverPatience = 2 * time.Minute
)

// nextSlotStep returns the next step of a slot whose machines in outdated must be replaced. With a surge, the machine
// is detached from its group, which launches the next one. That one prepares everything but the volume of the slot.
// Then the first is drained and hands over the slot, and is terminated when the other serves.
func (u update) nextSlotStep(g Group, outdated []Machine) slotState {
	s := u.replaceInSlot(g, outdated)
	if s.waiting == "" {
		s.waiting = u.reasonToSpare(s.action.Machine)
	}

	return s
}

// replaceInSlot is nextSlotStep for machines that are broken for good if they do not serve.
func (u update) replaceInSlot(g Group, outdated []Machine) slotState {
	i := slices.IndexFunc(outdated, func(m Machine) bool { return !m.Detached })
	if i >= 0 && len(outdated) > 1 {
		return u.removeSurplus(g, outdated[1-min(i, 1)], outdated[i])
	}

	old := outdated[0]
	if !old.Detached {
		action := u.nextAction(g, old)
		if g.Policy.MaxSurge > 0 && old.IsServing() && !old.Started {
			action.Type = ActionDetach
		}

		return slotState{action: action}
	}

	next, launched := u.replacementIn(g)
	if !launched {
		return u.awaitLaunch(g, old)
	}

	return u.handOver(g, old, next)
}

// removeSurplus returns the step for a slot whose machine in the group is to be replaced as well as the detached one, as
// after a rollback: the one that does not serve is terminated.
func (u update) removeSurplus(g Group, detached, other Machine) slotState {
	isLate := u.observation.Now.Sub(detached.HandOverSince) >= handOverPatience

	switch {
	case detached.HandOverTo == other.ID && !other.IsServing() && !isLate:
		return slotState{waiting: describeHandOver(g, detached, other)}
	case detached.IsServing():
		return slotState{action: u.nextAction(g, other)}
	}

	return slotState{action: u.nextAction(g, detached)}
}

// describeHandOver tells what a slot waits for.
func describeHandOver(g Group, old, next Machine) string {
	return fmt.Sprintf("%s: machine %s hands over the slot to %s", g.name(), old.ID, next.ID)
}

// replacementIn returns the newest machine of a slot that is up to date, and whether there is one.
func (u update) replacementIn(g Group) (Machine, bool) {
	machines := u.machinesOf(g)
	slices.Reverse(machines)
	i := slices.IndexFunc(machines, func(m Machine) bool { return !u.isOutdated(g, m) })
	if i < 0 {
		return Machine{}, false
	}

	return machines[i], true
}

// awaitLaunch returns the step while the group of a detached machine has launched no other. If there is no capacity, the
// machine makes room: it is terminated first.
func (u update) awaitLaunch(g Group, old Machine) slotState {
	waited := u.observation.Now.Sub(old.DetachedSince)
	isLate := !old.DetachedSince.IsZero() && waited >= launchPatience
	action := u.nextAction(g, old)

	switch {
	case !old.IsServing():
	case g.NoCapacity != "":
		action.Reason = "no machine can be launched in addition (" + g.NoCapacity + "), so this one is terminated first"
	case isLate:
		action.Reason = fmt.Sprintf("the group has launched no machine in %s, so this one is terminated first", launchPatience)
	default:
		return slotState{waiting: g.name() + ": the group launches a machine next to " + old.ID}
	}

	return slotState{action: action}
}

// handOver returns the step by which a slot goes from one machine to the next.
func (u update) handOver(g Group, old, next Machine) slotState {
	action := u.nextAction(g, old)
	isAsked := old.HandOverTo == next.ID
	isLate := u.observation.Now.Sub(old.HandOverSince) >= handOverPatience

	switch {
	case next.IsServing():
		return slotState{action: action}
	case isAsked && old.IsServing() && isLate:
		action.Type = ActionTerminate
		action.Reason = fmt.Sprintf("it has not handed over its slot in %s", handOverPatience)

		return slotState{action: action}

	case isAsked:
		return slotState{waiting: describeHandOver(g, old, next)}
	case !old.IsServing():
		return slotState{action: action}
	case !next.Prepared:
		return slotState{waiting: describePreparing(g, old, next)}
	case action.Type == ActionTerminate: // it is drained
		action.Type = ActionHandOver
		action.Successor = next.ID
	}

	return slotState{action: action}
}

// describePreparing tells what a slot waits for before its machine is drained.
func describePreparing(g Group, old, next Machine) string {
	text := fmt.Sprintf("%s: machine %s prepares while %s serves", g.name(), next.ID, old.ID)
	if next.BootStage != "" {
		text += " (" + next.BootStage + ")"
	}

	return text
}

// joiningSince returns since when a machine that is up to date could have joined, or serve again. A machine that is prepared waits for
// the one that hands over its slot.
func (u update) joiningSince(g Group, m Machine) time.Time {
	since := u.downSince(m)
	if m.Slot == "" {
		return since
	}

	for _, old := range u.machinesOf(g) {
		switch {
		case !old.Detached:
		case old.HandOverTo == m.ID:
			since = laterOf(since, old.HandOverSince)
		case m.Prepared:
			since = u.observation.Now
		}
	}

	return since
}
