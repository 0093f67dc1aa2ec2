// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
)

// decideControlPlane replaces one control-plane machine at a time. It waits whenever another slot does not
// serve, also if only workers are to be updated: a cluster without a healthy control plane is not touched.
func (u update) decideControlPlane() Decision {
	var d Decision
	var urgent, candidates []Action
	for _, g := range u.observation.Groups {
		if !g.isControlPlane() {
			continue
		}

		switch s := u.assessSlot(g); {
		case s.waiting != "":
			d.Waiting = append(d.Waiting, s.waiting)
		case s.isOutdated && s.isUrgent:
			urgent = append(urgent, s.action)
		case s.isOutdated:
			candidates = append(candidates, s.action)
		}
	}

	candidates = append(urgent, candidates...)
	if len(d.Waiting) > 0 || len(candidates) == 0 {
		return d
	}

	return u.decideSlot(candidates[0])
}

// decideSlot returns the step for the slot that is next, unless it must wait.
func (u update) decideSlot(first Action) Decision {
	// A machine whose own member is lost takes nothing from the quorum, so it may be replaced although another slot
	// is broken. Otherwise two broken slots would wait for each other.
	if broken := u.otherBrokenSlot(first.Machine.Slot); broken != "" && first.Machine.Member {
		return Decision{Waiting: []string{broken}}
	}

	if first.Machine.Started {
		return Decision{Actions: []Action{first}}
	}

	group := u.groupOf(first.Machine)
	if failed := u.failedGates(group); len(failed) > 0 {
		return Decision{Waiting: failed}
	}

	if until, m := u.pauseOf(group); until.After(u.observation.Now) && first.Machine.isServing() {
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
	// waiting is why nothing can be done in any slot now; empty otherwise.
	waiting string
	// isOutdated is set if the slot's machine must be replaced, by action.
	isOutdated bool
	action     Action
	// isUrgent is set if its replacement has begun, or if the machine is broken anyway.
	isUrgent bool
}

// assessSlot returns what there is to do in one slot.
func (u update) assessSlot(g Group) slotState {
	machines := u.machinesOf(g)
	serving := slices.ContainsFunc(machines, Machine.isServing)
	outdated := u.outdatedMachines(g)
	if len(outdated) == 0 || len(u.options.Only) > 0 && !slices.Contains(u.options.Only, g.Name) {
		if serving {
			return slotState{}
		}

		return slotState{waiting: describeMissing(g, machines)}
	}

	return slotState{
		isOutdated: true,
		action:     u.nextAction(g, outdated[0]),
		isUrgent:   outdated[0].Started || !serving,
	}
}

// otherBrokenSlot describes a control-plane slot other than this one that does not serve; empty if all do.
func (u update) otherBrokenSlot(slot string) string {
	for _, g := range u.observation.Groups {
		if !g.isControlPlane() || g.Slot == slot {
			continue
		}

		machines := u.machinesOf(g)
		if !slices.ContainsFunc(machines, Machine.isServing) {
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
	if m.Drained || !m.NodeReady {
		a.Type = ActionTerminate
	}

	return a
}
