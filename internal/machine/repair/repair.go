// SPDX-License-Identifier: Apache-2.0

// Package repair decides which workers are replaced because their node is not Ready for too long.
//
// [Decide] is a pure function of what was observed. It keeps no state: the time at which the repair of a machine began
// is part of the observation, so that another machine can continue a repair whose leader was killed at any step. The
// package calls no API and changes nothing.
//
// A machine is repaired only while the control plane is healthy, most nodes of its zone are Ready, and not more than the
// allowed share of its group is unhealthy: otherwise the cause is probably not the machine, and replacing it would make
// things worse.
//
// [DecidePeer] decides the same for the machines of the control plane, one at a time. The others must have a quorum of
// etcd members without it.
package repair

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DrainLimit is how long a repair waits for disruption budgets before it terminates the machine. Its pods do not serve.
const DrainLimit = 5 * time.Minute

// State is the state of a machine in its Auto Scaling group.
type State string

// The states.
const (
	// Starting: the machine has no node yet.
	Starting State = "starting"
	// Running: the machine has a node.
	Running State = "running"
	// Leaving: the machine is being terminated, or is in standby or detached.
	Leaving State = "leaving"
)

// Machine is one machine of the cluster.
type Machine struct {
	// ID is the instance id.
	ID string
	// Group is the name of the worker group; empty for the control plane.
	Group string
	// Zone is the availability zone.
	Zone string
	// State in the Auto Scaling group.
	State State
	// Ready is the condition of the node.
	Ready bool
	// Since is when the node became not Ready. Only for a node that is not Ready.
	Since time.Time
	// Began is when the repair of the machine began; zero if it has not.
	Began time.Time
	// Evicted is set if the node has no pod left to evict. Only for a machine whose repair has begun.
	Evicted bool
}

// Policy is the setting of a group.
type Policy struct {
	// Disabled turns repair off.
	Disabled bool
	// NotReadyFor is how long a node must be not Ready.
	NotReadyFor time.Duration
	// MaxUnhealthyPercent is the share of the group that may be unhealthy while machines are repaired.
	MaxUnhealthyPercent int
}

// Group is one worker group.
type Group struct {
	Name   string
	Policy Policy
	// Size is the desired number of machines.
	Size int
}

// limit returns how many machines of the group may be unhealthy while machines are repaired: at least one.
func (g Group) limit() int { return max(1, g.Size*g.Policy.MaxUnhealthyPercent/100) }

// Observation is what the decision depends on.
type Observation struct {
	Now time.Time
	// ControlPlane is why the control plane is not healthy; empty: it is.
	ControlPlane string
	Groups       []Group
	// Machines of all groups and of the control plane.
	Machines []Machine
}

// Kind is what to do with a machine.
type Kind string

// The kinds of actions, in the order in which a machine passes them.
const (
	// Begin cordons the node and records that the repair began.
	Begin Kind = "begin"
	// Evict tries to evict the pods of the node.
	Evict Kind = "evict"
	// Terminate terminates the machine. Its group launches another one.
	Terminate Kind = "terminate"
	// Cancel undoes Begin: the node is Ready again, or repair was turned off.
	Cancel Kind = "cancel"
)

// Action is one thing to do. Actions are idempotent.
type Action struct {
	Kind    Kind
	Machine string
	Reason  string
}

// Held is a machine that should be repaired and is not.
type Held struct {
	Machine string
	// Reason why not.
	Reason string
}

// Decision is the result of [Decide].
type Decision struct {
	Actions []Action
	Held    []Held
}

// Decide returns what to do now. The machines that are not Ready for the longest time come first.
func Decide(o Observation) Decision {
	var d Decision
	machines := slices.SortedFunc(slices.Values(o.Machines), func(a, b Machine) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID))
	})

	for _, m := range machines {
		g, known := o.group(m.Group)
		if !known || m.State != Running {
			continue
		}

		d.decideMachine(o, g, m)
	}

	return d
}

// decideMachine adds what to do with a running machine of a group.
func (d *Decision) decideMachine(o Observation, g Group, m Machine) {
	isBegun := !m.Began.IsZero()
	waited := o.Now.Sub(m.Since)
	switch {
	case g.Policy.Disabled || m.Ready:
		if isBegun {
			d.add(Cancel, m, cancelReason(m))
		}

		return
	case !isBegun && waited < g.Policy.NotReadyFor:
		return
	}

	if reason := o.obstacle(g, m); reason != "" {
		d.Held = append(d.Held, Held{Machine: m.ID, Reason: reason})
		return
	}

	took := o.Now.Sub(m.Began)
	switch {
	case !isBegun:
		d.add(Begin, m, "the node is not Ready for "+formatDuration(waited))
	case m.Evicted:
		d.add(Terminate, m, "its pods are evicted")
	case took >= DrainLimit:
		d.add(Terminate, m, "disruption budgets refuse evictions for "+formatDuration(took))
	default:
		d.add(Evict, m, "")
	}
}

// cancelReason returns why the repair of a machine ends.
func cancelReason(m Machine) string {
	if m.Ready {
		return "the node is Ready again"
	}

	return "automatic repair was turned off for the group"
}

func (d *Decision) add(kind Kind, m Machine, reason string) {
	d.Actions = append(d.Actions, Action{Kind: kind, Machine: m.ID, Reason: reason})
}

// group returns the group of a name.
func (o Observation) group(name string) (Group, bool) {
	n := slices.IndexFunc(o.Groups, func(g Group) bool { return g.Name == name && name != "" })
	if n < 0 {
		return Group{}, false
	}

	return o.Groups[n], true
}

// obstacle returns why a machine of a group cannot be repaired now; empty: it can.
func (o Observation) obstacle(g Group, m Machine) string {
	if o.ControlPlane != "" {
		return "the control plane is not healthy: " + o.ControlPlane
	}

	// One broken node says nothing of its zone. If the zone has a control-plane machine, that tells more, above.
	if broken, all := o.zoneHealth(m.Zone); broken > 1 && 2*broken > all {
		return fmt.Sprintf("%d of %d nodes in zone %s are not Ready: probably the zone has an outage", broken, all, m.Zone)
	}

	if n := o.unhealthy(g); n > g.limit() {
		return fmt.Sprintf("%d of %d machines of group %s are not healthy, more than %d (%d%%)",
			n, g.Size, g.Name, g.limit(), g.Policy.MaxUnhealthyPercent)
	}

	return ""
}

// zoneHealth returns how many nodes of a zone are not Ready, and how many nodes there are.
func (o Observation) zoneHealth(zone string) (broken, all int) {
	for _, m := range o.Machines {
		if m.Zone != zone || m.State != Running {
			continue
		}

		all++
		if !m.Ready {
			broken++
		}
	}

	return broken, all
}

// unhealthy returns how many machines of a group are not Ready, starting or missing.
func (o Observation) unhealthy(g Group) int {
	healthy := 0
	present := 0
	for _, m := range o.Machines {
		if m.Group != g.Name || m.State == Leaving {
			continue
		}

		present++
		if m.State == Running && m.Ready {
			healthy++
		}
	}

	return max(present, g.Size) - healthy
}

// formatDuration returns a duration in whole minutes, or in seconds below two minutes.
func formatDuration(d time.Duration) string {
	if d < 2*time.Minute {
		return d.Round(time.Second).String()
	}

	return strconv.Itoa(int(d.Minutes())) + "m"
}

// DefaultPolicy returns the policy of a group without a tag.
func DefaultPolicy() Policy { return Policy{NotReadyFor: 10 * time.Minute, MaxUnhealthyPercent: 20} }

// ParsePolicy parses what [Policy.String] returns, and returns the default policy for an empty text.
func ParsePolicy(text string) (Policy, error) {
	switch text {
	case "":
		return DefaultPolicy(), nil
	case disabled:
		return Policy{Disabled: true}, nil
	}

	wait, share, _ := strings.Cut(text, " ")
	var p Policy
	var err error
	if p.NotReadyFor, err = time.ParseDuration(wait); err != nil {
		return Policy{}, fmt.Errorf("parse the repair policy %q: %w", text, err)
	}

	if p.MaxUnhealthyPercent, err = strconv.Atoi(strings.TrimSuffix(share, "%")); err != nil {
		return Policy{}, fmt.Errorf("parse the repair policy %q: %w", text, err)
	}

	return p, nil
}

// disabled is the text of a policy that turns repair off.
const disabled = "off"

// String returns the policy as the value of the tag slipway.dev/repair of an Auto Scaling group, such as "10m0s 20%". A
// group's tag reaches the control plane without a new machine.
func (p Policy) String() string {
	if p.Disabled {
		return disabled
	}

	return fmt.Sprintf("%s %d%%", p.NotReadyFor, p.MaxUnhealthyPercent)
}
