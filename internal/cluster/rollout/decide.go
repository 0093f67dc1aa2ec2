// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
	failed := u.failedMachines()
	if u.tooManyFailures(failed) {
		return Decision{Failure: u.describeFailure(failed), Failed: failed}
	}

	if opts.Stopping {
		return u.decideStopping()
	}

	if marks := u.decideMarks(); len(marks) > 0 {
		return Decision{Actions: marks}
	}

	d := u.decideControlPlane()
	if d.IsDone() {
		d = u.decideWorkers()
	}

	if len(failed) > 0 && len(d.Actions) == 0 && !u.isInProgress() {
		return Decision{Failure: u.describeFailure(failed), Failed: failed}
	}

	d.Failed = failed

	return d
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
	return m.Version != g.Version && !m.IsFollowing || m.Started || m.Detached ||
		m.Launched.Before(u.options.Force)
}

// describeDetached tells why a detached machine is replaced.
const describeDetached = "it was detached from its group to make room for a new one"

// describeOutdated tells why a machine is replaced.
func (u update) describeOutdated(g Group, m Machine) string {
	switch {
	case m.Detached && m.Version == "": // Auto Scaling does not tell the version any more
		return describeDetached
	case m.Version != g.Version && len(m.Pending) > 0:
		return "its new node document needs a new machine: " + strings.Join(m.Pending, ", ")
	case m.Version != g.Version && !m.IsFollowing:
		return fmt.Sprintf("its launch template is version %s, the group's is %s", m.Version, g.Version)
	case m.Started:
		return "its replacement had begun"
	case m.Detached:
		return describeDetached
	default:
		return "every machine is replaced, as requested"
	}
}

// outdatedMachines returns the machines of a group to replace: those in progress first, then those that do
// not serve, since their replacement makes nothing worse, then spread over the zones, the oldest first.
// Detached machines are last: they are the surplus.
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
			compareBool(a.IsServing(), b.IsServing()),
			compareBool(a.Detached, b.Detached),
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
