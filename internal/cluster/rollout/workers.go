// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"time"
)

// decideMarks returns which nodes of workers get the taint of outdated nodes, and which lose it. All outdated
// nodes are marked before the first drain, so that pods do not move from one of them to the next.
func (u update) decideMarks() []Action {
	var out []Action
	for _, g := range u.selectedGroups() {
		if g.isControlPlane() {
			continue
		}

		for _, m := range u.machinesOf(g) {
			outdated := u.isOutdated(g, m)
			switch {
			case m.NodeName == "" || m.Started:
				continue
			case outdated && !m.Marked:
				out = append(out, Action{Type: ActionMark, Machine: m, Reason: u.describeOutdated(g, m)})
			case !outdated && m.Marked:
				out = append(out, Action{Type: ActionUnmark, Machine: m, Reason: "it is up to date"})
			}
		}
	}

	return out
}

// failedGates returns the gates that keep machines of a group from being taken.
func (u update) failedGates(g Group) []string {
	return slices.Concat(u.observation.FailedGates, g.FailedGates)
}

// pauseOf returns until when a group pauses, after its newest machine has become Ready. All slots of the control
// plane are one group.
func (u update) pauseOf(group Group) (time.Time, Machine) {
	var newest Machine
	if group.Policy.PauseBetween <= 0 {
		return time.Time{}, newest
	}

	for _, g := range u.observation.Groups {
		if g.Name != group.Name {
			continue
		}

		for _, m := range u.machinesOf(g) {
			if !u.isOutdated(g, m) && m.ReadySince.After(newest.ReadySince) {
				newest = m
			}
		}
	}

	if newest.ReadySince.IsZero() {
		return time.Time{}, newest
	}

	return newest.ReadySince.Add(group.Policy.PauseBetween), newest
}

// describePause tells what a pause waits for.
func describePause(g Group, newest Machine) string {
	return fmt.Sprintf("%s: pauses for %s since machine %s is Ready", g.name(), g.Policy.PauseBetween, newest.ID)
}

// decideWorkers replaces workers of all groups in parallel.
func (u update) decideWorkers() Decision {
	var d Decision
	paused := 0
	for _, g := range u.selectedGroups() {
		if g.isControlPlane() {
			continue
		}

		w := u.countWorkers(g)
		before := len(d.Waiting)
		u.decideGroup(w, &d)
		if len(d.Waiting) > before && w.pausedUntil.After(u.observation.Now) {
			paused++
			d.PausedUntil = laterOf(d.PausedUntil, w.pausedUntil)
		}
	}

	if paused < len(d.Waiting) {
		d.PausedUntil = time.Time{}
	}

	return d
}

// laterOf returns the later one of two times.
func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}

// workerGroup is a group of workers during one decision.
type workerGroup struct {
	Group
	outdated []Machine
	// serving counts the machines that serve and whose replacement has not begun.
	serving int
	// updated counts those of them that are up to date.
	updated int
	// joining counts the machines that are up to date and do not serve yet, and those that the Auto Scaling
	// group has not launched yet.
	joining int
	// started counts the replacements that have begun, as long as their old machine exists.
	started int
	// detached counts the machines that were detached, until they are terminated: they are what the group has in addition.
	detached int
	// pausedUntil is when the group's pause ends; zero: no pause.
	pausedUntil time.Time
	// newest is the machine that the pause is about.
	newest Machine
}

// countWorkers returns a group with its numbers.
func (u update) countWorkers(g Group) workerGroup {
	w := workerGroup{Group: g, outdated: u.outdatedMachines(g)}
	w.pausedUntil, w.newest = u.pauseOf(g)
	inGroup := 0
	for _, m := range u.machinesOf(g) {
		switch {
		case m.Started:
			w.started++
		case m.IsServing():
			w.serving++
		}

		if m.Detached {
			w.detached++
		} else {
			inGroup++
		}

		switch {
		case u.isOutdated(g, m):
		case m.IsServing():
			w.updated++
		default:
			w.joining++
		}
	}

	w.joining += max(0, g.Size-inGroup)

	return w
}

// canaries returns how many machines are replaced before all others: at least one, so that a configuration that does not
// work costs one machine, however large the batches are.
func (w workerGroup) canaries() int { return min(max(1, w.Policy.Canary), w.Size) }

// canaryLimit returns how many machines may be begun until the canaries serve; all once they do.
func (w workerGroup) canaryLimit() int {
	canaries := w.canaries()
	if w.updated >= canaries {
		return len(w.outdated)
	}

	return max(0, canaries-w.updated-w.joining-w.started)
}

// allowance is what a group may still begin in one decision.
type allowance struct {
	// canaries is the number of machines that may be begun before the canaries serve.
	canaries int
	// missing is the number of machines that may be taken from service.
	missing int
	// surge is the number of machines that may be detached.
	surge int
	// broken is the number of machines that do not serve and may be replaced at once.
	broken int
}

// takeBroken uses up the allowance for a machine that does not serve. It returns why the machine must wait; empty if it
// is replaced. Its replacement takes nothing from service, but many at once would end machines that are cut off and serve.
func (w workerGroup) takeBroken(left *allowance) string {
	switch {
	case left.broken <= 0:
		return w.describeBudget()
	case left.canaries <= 0:
		return w.describeCanaries()
	}

	left.broken--
	left.canaries--

	return ""
}

// take uses up the allowance for a machine that serves. It returns whether the machine is detached first, or why it
// must wait.
func (w workerGroup) take(m Machine, left *allowance) (detach bool, waiting string) {
	if !m.Detached && left.surge > 0 && left.canaries > 0 {
		left.surge--
		left.canaries--

		return true, ""
	}

	switch {
	case left.missing <= 0 && (m.Detached || left.surge <= 0):
		return false, w.describeBudget()
	case left.canaries <= 0 && !m.Detached:
		return false, w.describeCanaries()
	}

	left.missing--
	if !m.Detached { // a detached machine has its replacement already
		left.canaries--
	}

	return false, ""
}

// decideGroup adds the next steps for a group of workers.
func (u update) decideGroup(w workerGroup, d *Decision) {
	left := allowance{
		canaries: w.canaryLimit(),
		missing:  w.Policy.maxMissing() - (w.Size - w.serving),
		surge:    w.Policy.MaxSurge - w.detached,
		broken:   max(1, w.Policy.maxMissing()) - w.joining - w.started,
	}

	for _, m := range w.outdated {
		if spared := u.reasonToSpare(m); spared != "" {
			d.Waiting = append(d.Waiting, spared)
			continue
		}

		action, waiting := u.decideWorker(w, m, &left)
		d.Waiting = append(d.Waiting, waiting...)
		if len(waiting) > 0 {
			return
		}

		d.Actions = append(d.Actions, action)
	}

	if len(w.outdated) == 0 && w.serving < w.Size {
		d.Waiting = append(d.Waiting, fmt.Sprintf("%s: %d of %d machines serve", w.name(), w.serving, w.Size))
	}
}

// decideWorker returns the next step of one machine, or why it and all later ones must wait.
func (u update) decideWorker(w workerGroup, m Machine, left *allowance) (Action, []string) {
	action := u.nextAction(w.Group, m)
	isSurplus := m.Detached && !m.IsServing()
	if m.Started || isSurplus {
		return action, nil
	}

	if reason := u.reasonToWait(w); reason != nil {
		return action, reason
	}

	take := w.take
	if !m.IsServing() {
		take = func(_ Machine, left *allowance) (bool, string) { return false, w.takeBroken(left) }
	}

	detach, waiting := take(m, left)

	if waiting != "" {
		return action, []string{waiting}
	}

	if detach {
		action.Type = ActionDetach
	}

	return action, nil
}

// reasonToWait returns why no further machine of the group may be begun; nil if one may.
func (u update) reasonToWait(w workerGroup) []string {
	switch failed := u.failedGates(w.Group); {
	case len(failed) > 0:
		return failed
	case w.pausedUntil.After(u.observation.Now):
		return []string{describePause(w.Group, w.newest)}
	}

	if outage := u.describeOutages(); outage != "" {
		return []string{outage}
	}

	return nil
}

// describeCanaries tells how many canaries serve.
func (w workerGroup) describeCanaries() string {
	return fmt.Sprintf("%s: %d of %d canary machines serve", w.name(), w.updated, w.canaries())
}

// describeBudget tells why no further machine may be missing.
func (w workerGroup) describeBudget() string {
	return fmt.Sprintf(
		"%s: %d of %d machines serve, and at most %d may be missing",
		w.name(),
		w.serving,
		w.Size,
		w.Policy.maxMissing(),
	)
}
