// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Decide returns the next steps of a rolling update. It is a pure function.
//
// Never is more than one control-plane machine replaced at a time, and none unless all other control-plane
// machines serve; never are more workers of a group unavailable because of the update than its policy allows.
func Decide(o Observation, opts Options) Decision {
	if !o.APIReady {
		return Decision{Waiting: []string{"the Kubernetes API does not answer"}}
	}

	u := update{observation: o, options: opts}
	if failure := u.findFailure(); failure != "" {
		return Decision{Failure: failure}
	}

	if d := u.decideControlPlane(); !d.IsDone() {
		return d
	}

	return u.decideWorkers()
}

// Plan returns the machines that a rolling update would replace now, in the order of their replacement, each
// with the reason.
func Plan(o Observation, opts Options) []Action {
	u := update{observation: o, options: opts}
	var out []Action
	for _, g := range u.selectedGroups() {
		for _, m := range u.outdatedMachines(g) {
			out = append(out, Action{Type: ActionDrain, Machine: m, Reason: u.describeOutdated(g, m)})
		}
	}

	return out
}

// update is one decision in progress.
type update struct {
	observation Observation
	options     Options
}

// selectedGroups returns the groups to update: the control plane first.
func (u update) selectedGroups() []Group {
	var out []Group
	for _, g := range u.observation.Groups {
		if len(u.options.Only) == 0 || slices.Contains(u.options.Only, g.Name) {
			out = append(out, g)
		}
	}

	slices.SortStableFunc(out, func(a, b Group) int {
		return cmp.Compare(rank(a), rank(b))
	})

	return out
}

// rank sorts the control plane before workers.
func rank(g Group) int {
	if g.isControlPlane() {
		return 0
	}

	return 1
}

// machinesOf returns the machines of a group that are not being terminated, the oldest first.
func (u update) machinesOf(g Group) []Machine {
	var out []Machine
	for _, m := range u.observation.Machines {
		if m.Group == g.Name && m.Slot == g.Slot && m.State != StateTerminating {
			out = append(out, m)
		}
	}

	slices.SortFunc(out, func(a, b Machine) int {
		return cmp.Or(a.Launched.Compare(b.Launched), cmp.Compare(a.ID, b.ID))
	})

	return out
}

// isOutdated reports whether a machine must be replaced: it has an older launch template, its replacement has
// begun, or the update is forced.
func (u update) isOutdated(g Group, m Machine) bool {
	return m.Version != g.Version || m.Started || m.Launched.Before(u.options.Force)
}

// describeOutdated tells why a machine is replaced.
func (u update) describeOutdated(g Group, m Machine) string {
	switch {
	case m.Version != g.Version:
		return fmt.Sprintf("its launch template is version %s, the group's is %s", m.Version, g.Version)
	case m.Started:
		return "its replacement had begun"
	default:
		return "every machine is replaced, as requested"
	}
}

// outdatedMachines returns the machines of a group to replace: those in progress first, then those that do
// not serve, since their replacement makes nothing worse, then spread over the zones, the oldest first.
func (u update) outdatedMachines(g Group) []Machine {
	var out []Machine
	for _, m := range u.machinesOf(g) {
		if u.isOutdated(g, m) {
			out = append(out, m)
		}
	}

	nth := map[string]int{}
	turn := map[string]int{}
	for _, m := range out {
		turn[m.ID] = nth[m.Zone]
		nth[m.Zone]++
	}

	slices.SortStableFunc(out, func(a, b Machine) int {
		return cmp.Or(
			compareBool(b.Started, a.Started),
			compareBool(a.isServing(), b.isServing()),
			cmp.Compare(turn[a.ID], turn[b.ID]),
		)
	})

	return out
}

// compareBool sorts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// findFailure returns why the update must stop: a machine with the newest launch template did not join in
// time, so that further replacements would most likely fail as well.
func (u update) findFailure() string {
	for _, g := range u.selectedGroups() {
		for _, m := range u.machinesOf(g) {
			age := u.observation.Now.Sub(m.Launched)
			if u.isOutdated(g, m) || m.isServing() || age < u.options.JoinTimeout {
				continue
			}

			failure := fmt.Sprintf(
				"machine %s of group %s has the newest launch template and is not Ready, %s after its launch",
				m.ID,
				g.name(),
				age.Round(time.Second),
			)
			if m.BootStage != "" {
				failure += "; it stopped at " + m.BootStage
			}

			return failure
		}
	}

	return ""
}

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

	if !first.Machine.Started && len(u.observation.FailedGates) > 0 {
		return Decision{Waiting: u.observation.FailedGates}
	}

	return Decision{Actions: []Action{first}}
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

// decideWorkers replaces workers of all groups in parallel.
func (u update) decideWorkers() Decision {
	var d Decision
	for _, g := range u.selectedGroups() {
		if !g.isControlPlane() {
			u.decideGroup(g, &d)
		}
	}

	return d
}

// decideGroup adds the next steps for a group of workers.
func (u update) decideGroup(g Group, d *Decision) {
	machines := u.machinesOf(g)
	outdated := u.outdatedMachines(g)
	serving := 0
	for _, m := range machines {
		if m.isServing() && !m.Started {
			serving++
		}
	}

	allowed := max(1, g.Policy.MaxUnavailable)
	budget := allowed - max(0, g.Size-serving)
	for _, m := range outdated {
		switch {
		case m.Started || !m.isServing():
			d.Actions = append(d.Actions, u.nextAction(g, m))
		case len(u.observation.FailedGates) > 0:
			d.Waiting = append(d.Waiting, u.observation.FailedGates...)
			return
		case budget <= 0:
			text := fmt.Sprintf("%s: %d of %d machines serve, and at most %d may be missing",
				g.name(), serving, g.Size, allowed)
			d.Waiting = append(d.Waiting, text)
			return
		default:
			budget--
			d.Actions = append(d.Actions, u.nextAction(g, m))
		}
	}

	if len(outdated) == 0 && serving < g.Size {
		d.Waiting = append(d.Waiting, fmt.Sprintf("%s: %d of %d machines serve", g.name(), serving, g.Size))
	}
}
