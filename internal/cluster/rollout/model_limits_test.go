// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// checkAction checks the limits: what the action takes from service, with what is missing already.
func (w *world) checkAction(t *rapid.T, a rollout.Action) {
	m := a.Machine
	if m.State == rollout.StateTerminating {
		t.Fatalf("%s of %s, which is being terminated", a.Type, m.ID)
	}

	if w.apiDown > 0 {
		t.Fatalf("%s of %s although the API does not answer", a.Type, m.ID)
	}

	if m.Slot != "" {
		w.checkQuorum(t, a)
		return
	}

	if a.Type == rollout.ActionMark || a.Type == rollout.ActionUnmark {
		return
	}

	if !m.NodeReady {
		w.checkBroken(t, a)
	}

	if m.Started || !m.NodeReady && m.Detached {
		return // takes nothing more from service
	}

	if len(w.gates) > 0 {
		t.Fatalf("%s of %s although a gate does not pass", a.Type, m.ID)
	}

	for _, g := range w.groups {
		if g.Name == m.Group && g.Slot == "" {
			w.checkWorkers(t, g, a)
		}
	}
}

// checkWorkers checks the limits of a group of workers before a serving machine of it is drained or detached.
func (w *world) checkWorkers(t *rapid.T, g rollout.Group, a rollout.Action) {
	serving, detached, begun, updated, inGroup := 0, 0, 0, 0, 0
	for _, x := range w.machines {
		if x.Group != g.Name || x.State == rollout.StateTerminating {
			continue
		}

		serves := x.State == rollout.StateRunning && x.NodeReady && !x.Started
		if serves {
			serving++
		}

		if x.Detached {
			detached++
		} else {
			inGroup++
		}

		isNew := x.Version == newVersion && !x.Detached && !x.Started
		if isNew || x.Started {
			begun++
		}

		if isNew && serves {
			updated++
		}
	}

	begun += max(0, g.Size-inGroup)
	missing := max(1, g.Policy.MaxUnavailable)
	if g.Policy.MaxSurge > 0 {
		missing = g.Policy.MaxUnavailable
	}

	switch canaries := min(max(1, g.Policy.Canary), g.Size); {
	case a.Type == rollout.ActionDetach && detached >= g.Policy.MaxSurge:
		t.Fatalf("detach of %s: %d machines are detached already, %d may be", a.Machine.ID, detached, g.Policy.MaxSurge)
	case !a.Machine.NodeReady && w.inProgress(g)+1 > max(1, missing):
		t.Fatalf("%s of %s: %d replacements are in progress, %d may be", a.Type, a.Machine.ID, w.inProgress(g), max(1, missing))
	case a.Machine.NodeReady && a.Type == rollout.ActionDrain && serving-1 < g.Size-missing:
		t.Fatalf("drain of %s: %d of %d workers would serve, %d may be missing", a.Machine.ID, serving-1, g.Size, missing)
	case updated < canaries && begun+1 > canaries && !a.Machine.Detached:
		t.Fatalf("%s of %s: %d machines were begun, and %d of %d canaries serve", a.Type, a.Machine.ID, begun, updated, canaries)
	}
}

// inProgress counts the replacements of a group that have begun, and the machines that are up to date and do not serve.
func (w *world) inProgress(g rollout.Group) int {
	n := 0
	inGroup := 0
	for _, x := range w.machines {
		if x.Group != g.Name || x.State == rollout.StateTerminating {
			continue
		}

		if !x.Detached {
			inGroup++
		}

		if x.Started || x.Version == newVersion && !x.Detached && !x.NodeReady {
			n++
		}
	}

	return n + max(0, g.Size-inGroup)
}

// checkBroken checks that a machine whose node is not Ready is ended only if that lasts, and if it is not the zone that has
// failed: the pods of such machines may serve.
func (w *world) checkBroken(t *rapid.T, a rollout.Action) {
	m := a.Machine
	if a.Type != rollout.ActionTerminate || m.Drained || m.NodeName == "" {
		return
	}

	if down := w.now.Sub(w.servedAt[m.ID]); down < 2*time.Minute {
		t.Fatalf("%s is ended undrained: it served %s ago", m.ID, down)
	}

	broken, all := 0, 0
	for _, x := range w.machines {
		if x.Zone == m.Zone && x.State == rollout.StateRunning && x.NodeName != "" {
			all++
			if !x.NodeReady {
				broken++
			}
		}
	}

	if broken > 1 && 2*broken > all {
		t.Fatalf("%s is ended undrained: %d of %d nodes of its zone are not Ready", m.ID, broken, all)
	}
}

// checkQuorum checks that an action never takes a healthy member while another one is missing.
func (w *world) checkQuorum(t *rapid.T, a rollout.Action) {
	if a.Type == rollout.ActionHandOver && !slices.ContainsFunc(w.machines, func(m rollout.Machine) bool {
		return m.ID == a.Successor && m.Slot == a.Machine.Slot && m.Prepared
	}) {
		t.Fatalf("hand-over of %s to %s, which is not prepared", a.Machine.ID, a.Successor)
	}

	if len(w.alarms) > 0 {
		t.Fatalf("%s of %s although etcd has raised an alarm", a.Type, a.Machine.ID)
	}

	if !a.Machine.NodeReady {
		w.checkBroken(t, a)
	}

	w.checkSurplus(t, a)
	if !w.votes[a.Machine.ID] {
		return
	}

	// A machine whose agent hangs is replaced before one whose drain has begun, which still votes. After a member that was lost
	// has come back, two drains have begun: both machines serve, and one of them is next.
	begins := a.Machine.Member == rollout.MemberHealthy && !a.Machine.Started
	for _, g := range w.groups {
		if g.Slot == "" || g.Slot == a.Machine.Slot {
			continue
		}

		serves := slices.ContainsFunc(w.machines, func(m rollout.Machine) bool {
			return m.Slot == g.Slot && m.State == rollout.StateRunning && m.NodeReady && w.votes[m.ID] && (!m.Started || !begins)
		})
		if !serves {
			t.Fatalf("%s of %s in slot %s while slot %s does not serve", a.Type, a.Machine.ID, a.Machine.Slot, g.Slot)
		}
	}
}

// checkSurplus checks that a machine that was detached is taken from service only when its slot needs it no more: the
// next one has prepared, cannot be launched, or does not get the slot in time.
func (w *world) checkSurplus(t *rapid.T, a rollout.Action) {
	m := a.Machine
	if !m.Detached || m.Member != rollout.MemberHealthy || !m.NodeReady || a.Type != rollout.ActionDrain && a.Type != rollout.ActionTerminate {
		return
	}

	next := slices.IndexFunc(w.machines, func(x rollout.Machine) bool {
		return x.Slot == m.Slot && x.ID != m.ID && x.State != rollout.StateTerminating
	})
	switch {
	case next < 0 && !w.noCapacity[m.Slot] && w.now.Sub(m.DetachedSince) < 3*time.Minute:
		t.Fatalf("%s of %s before its group has launched another machine", a.Type, m.ID)
	case next >= 0 && a.Type == rollout.ActionDrain && !w.machines[next].Prepared:
		t.Fatalf("%s of %s before %s has prepared", a.Type, m.ID, w.machines[next].ID)
	case next >= 0 && a.Type == rollout.ActionTerminate && w.now.Sub(m.HandOverSince) < 2*time.Minute:
		t.Fatalf("%s of %s, which still has its slot", a.Type, m.ID)
	}
}
