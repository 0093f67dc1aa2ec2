// SPDX-License-Identifier: Apache-2.0

package rollout

// Step is where a machine is in an update.
type Step string

// The steps, in their order.
const (
	// StepPending is an outdated machine whose replacement has not begun.
	StepPending Step = "pending"
	// StepDetached is an outdated machine that serves besides the new one of its group.
	StepDetached Step = "detached"
	// StepDraining is a machine whose pods are evicted.
	StepDraining Step = "draining"
	// StepTerminating is a machine that is being terminated.
	StepTerminating Step = "terminating"
	// StepHandingOver is a control-plane machine that hands over its slot.
	StepHandingOver Step = "handing over"
	// StepStandby is a new control-plane machine that has prepared everything and waits for its slot.
	StepStandby Step = "standby"
	// StepStarting is a new machine that does not serve yet.
	StepStarting Step = "starting"
	// StepFailed is a new machine that did not join in time.
	StepFailed Step = "failed"
	// StepUpdated is a machine that is up to date and serves.
	StepUpdated Step = "updated"
)

// MachineStep is one machine with its step.
type MachineStep struct {
	// Machine as it was observed.
	Machine Machine
	// Step of the machine.
	Step Step
	// Reason why an outdated machine is replaced; empty for others.
	Reason string
}

// Steps returns the step of every machine of the groups to update, in the order of the groups, the machines in
// the order in which they were launched.
func Steps(o Observation, opts Options) []MachineStep {
	u := update{observation: o, options: opts}
	var out []MachineStep
	for _, g := range u.selectedGroups() {
		for _, m := range o.Machines {
			if m.Group != g.Name || m.Slot != g.Slot {
				continue
			}

			s := MachineStep{Machine: m, Step: u.stepOf(g, m)}
			if m.State != StateTerminating && u.isOutdated(g, m) {
				s.Reason = u.describeOutdated(g, m)
			}

			out = append(out, s)
		}
	}

	return out
}

// stepOf returns the step of one machine.
func (u update) stepOf(g Group, m Machine) Step {
	switch {
	case m.State == StateTerminating:
		return StepTerminating
	case m.HandOverTo != "":
		return StepHandingOver
	case m.Started:
		return StepDraining
	case m.Detached:
		return StepDetached
	case u.isOutdated(g, m):
		return StepPending
	case m.IsServing():
		return StepUpdated
	case u.options.JoinTimeout > 0 && u.observation.Now.Sub(u.joiningSince(g, m)) >= u.options.JoinTimeout:
		return StepFailed
	case m.Prepared:
		return StepStandby
	}

	return StepStarting
}
