// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// decideControlPlane replaces one control-plane machine at a time. It waits whenever another slot does not
// serve, also if only workers are to be updated: a cluster without a healthy control plane is not touched.
func (u update) decideControlPlane() Decision {
	var waiting []string
	var candidates []slotState
	if alarms := u.observation.Alarms; len(alarms) > 0 {
		waiting = append(waiting, describeAlarms(alarms))
	}

	if id := u.observation.Changing; id != "" {
		waiting = append(waiting, describeApplying(id))
	}

	for _, g := range u.observation.Groups {
		if !g.isControlPlane() {
			continue
		}

		switch s := u.assessSlot(g); {
		case s.broken != "":
			waiting = append(waiting, s.broken)
		case s.isOutdated:
			candidates = append(candidates, s)
		}
	}

	if len(waiting) > 0 || len(candidates) == 0 {
		return Decision{Waiting: waiting}
	}

	slices.SortStableFunc(candidates, func(a, b slotState) int { return cmp.Compare(a.rank, b.rank) })
	if candidates[0].rank == rankServing {
		// Machines that wait for their turn need no replacement when they have had it. They wait in vain, though, for a
		// slot that does not serve, or whose replacement has begun.
		waiting = u.describeFollowers()
	}

	if len(waiting) > 0 {
		return Decision{Waiting: waiting}
	}

	return u.decideSlot(candidates[0])
}

// describeApplying tells that a machine has the control plane's update lock.
func describeApplying(id string) string { return "machine " + id + " is applying its node document" }

// describeAlarms tells which alarms etcd has raised. They are those of the cluster, and say nothing of a single member.
func describeAlarms(alarms []string) string {
	return "etcd has raised the alarm " + strings.Join(alarms, ", ")
}

// describeFollowers names the machines of the control plane that are about to apply their node document.
func (u update) describeFollowers() []string {
	var out []string
	for _, g := range u.observation.Groups {
		if !g.isControlPlane() {
			continue
		}

		for _, m := range u.machinesOf(g) {
			if m.IsApplying && m.IsServing() {
				out = append(out, describeApplying(m.ID))
			}
		}
	}

	return out
}

// NeedsTurn reports whether the update must have the control plane's update lock for a decision, so that no machine of
// the control plane restarts components meanwhile: from the first step of a replacement until all slots serve. isHeld is
// whether it has the lock.
func NeedsTurn(o Observation, d Decision, isHeld bool) bool {
	if slices.ContainsFunc(d.Actions, func(a Action) bool { return a.Machine.Slot != "" }) {
		return true
	}

	if !o.APIReady {
		return isHeld
	}

	u := update{observation: o}
	for _, g := range o.Groups {
		if !g.isControlPlane() {
			continue
		}

		machines := u.machinesOf(g)
		isMissing := !slices.ContainsFunc(machines, Machine.IsServing)
		if slices.ContainsFunc(machines, hasBegun) || isHeld && isMissing {
			return true
		}
	}

	return false
}

// decideSlot returns the step for the slot that is next, unless it must wait.
func (u update) decideSlot(s slotState) Decision {
	if s.waiting != "" {
		return Decision{Waiting: []string{s.waiting}}
	}

	// A machine whose own member is lost for sure takes nothing from the quorum, so it may be replaced although another
	// slot is broken. Otherwise two broken slots would wait for each other. A member of which nothing is known may vote.
	first := s.action
	if broken := u.otherBrokenSlot(first.Machine.Slot); broken != "" && first.Machine.Member != MemberLost {
		return Decision{Waiting: []string{broken}}
	}

	if !first.begins() {
		return Decision{Actions: []Action{first}}
	}

	group := u.groupOf(first.Machine)
	if failed := u.failedGates(group); len(failed) > 0 {
		return Decision{Waiting: failed}
	}

	if until, m := u.pauseOf(group); until.After(u.observation.Now) && first.Machine.IsServing() {
		return Decision{Waiting: []string{describePause(group, m)}, PausedUntil: until}
	}

	return Decision{Actions: []Action{first}}
}

// groupOf returns the group of a machine.
func (u update) groupOf(m Machine) Group {
	for _, g := range u.observation.Groups {
		if g.Name == m.Group && g.Slot == m.Slot {
			return g
		}
	}

	return Group{Name: m.Group, Slot: m.Slot}
}

// slotState is what there is to do in one slot of the control plane.
type slotState struct {
	// broken is why nothing can be done in any slot now: the slot is up to date and does not serve.
	broken string
	// isOutdated is set if the slot's machine must be replaced: by action, or after what waiting tells.
	isOutdated bool
	action     Action
	waiting    string
	// rank is lower for slots that are replaced earlier: those that do not serve, then those whose replacement has begun. There
	// can be two of them: a member that was lost is replaced first, and may come back.
	rank int
}

// assessSlot returns what there is to do in one slot.
func (u update) assessSlot(g Group) slotState {
	machines := u.machinesOf(g)
	serving := slices.ContainsFunc(machines, Machine.IsServing)
	outdated := u.outdatedMachines(g)
	if len(outdated) == 0 || len(u.options.Only) > 0 && !slices.Contains(u.options.Only, g.Name) {
		if serving {
			return slotState{}
		}

		return slotState{broken: describeMissing(g, machines)}
	}

	s := u.nextSlotStep(g, outdated)
	s.isOutdated = true
	switch {
	case !serving && s.action.Machine.Member == MemberLost:
		s.rank = rankLost
	case !serving:
		s.rank = rankBroken
	case slices.ContainsFunc(outdated, func(m Machine) bool { return m.Started }):
		s.rank = rankDrained
	case hasBegun(outdated[0]):
		s.rank = rankBegun
	default:
		s.rank = rankServing
	}

	return s
}

// The ranks of slots to replace, the first one first.
const (
	rankLost    = iota // the slot has no member
	rankBroken         // the slot does not serve
	rankDrained        // the drain has begun
	rankBegun          // the machine is detached, to make room for a new one
	rankServing        // the slot serves
)

// hasBegun reports whether the replacement of a control-plane machine has begun.
func hasBegun(m Machine) bool { return m.Started || m.Detached }

// otherBrokenSlot describes a control-plane slot other than this one that does not serve; empty if all do.
func (u update) otherBrokenSlot(slot string) string {
	for _, g := range u.observation.Groups {
		if !g.isControlPlane() || g.Slot == slot {
			continue
		}

		machines := u.machinesOf(g)
		if !slices.ContainsFunc(machines, Machine.IsServing) {
			return describeMissing(g, machines)
		}
	}

	return ""
}

// describeMissing tells what a slot waits for.
func describeMissing(g Group, machines []Machine) string {
	if len(machines) == 0 {
		return g.name() + " has no machine yet"
	}

	m := machines[len(machines)-1]
	text := fmt.Sprintf("%s: machine %s is not Ready yet", g.name(), m.ID)
	if m.NodeReady {
		text = fmt.Sprintf("%s: the etcd member of machine %s is not healthy yet", g.name(), m.ID)
	}

	if m.BootStage != "" {
		text += " (" + m.BootStage + ")"
	}

	return text
}

// nextAction returns the next step for a machine that is to be replaced.
func (u update) nextAction(g Group, m Machine) Action {
	a := Action{Type: ActionDrain, Machine: m, Reason: u.describeOutdated(g, m)}
	// Nothing evicts pods from a node whose kubelet does not answer.
	if m.Drained || !m.NodeReady && !u.isDoubtful(m) {
		a.Type = ActionTerminate
	}

	return a
}
