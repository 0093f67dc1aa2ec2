// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The limits of the repair of the control plane.
const (
	// MinPeerPatience is the least value of [PeerPolicy.NotReadyFor]. A kubelet that restarts is Ready again before.
	MinPeerPatience = 2 * time.Minute
	// MinPeerAge is the least value of [PeerPolicy.MinMachineAge].
	MinPeerAge = 5 * time.Minute
	// PeerPause is the time between the repairs of two machines of the control plane.
	PeerPause = 30 * time.Minute
)

// PeerPolicy is spec.repair of a control plane.
type PeerPolicy struct {
	// Disabled turns the repair off.
	Disabled bool
	// NotReadyFor is how long a machine of the control plane must not work before it is replaced.
	NotReadyFor time.Duration
	// MinMachineAge is how old each machine of the control plane must be: a new one may still restore or copy its data.
	MinMachineAge time.Duration
}

// DefaultPeerPolicy returns the policy of a control plane whose Auto Scaling groups have no tag.
func DefaultPeerPolicy() PeerPolicy {
	return PeerPolicy{NotReadyFor: 10 * time.Minute, MinMachineAge: 20 * time.Minute}
}

// ParsePeerPolicy parses what [PeerPolicy.String] returns, and returns the default policy for an empty text. It refuses
// times below [MinPeerPatience] and [MinPeerAge].
func ParsePeerPolicy(text string) (PeerPolicy, error) {
	switch text {
	case "":
		return DefaultPeerPolicy(), nil
	case disabled:
		return PeerPolicy{Disabled: true}, nil
	}

	wait, age, _ := strings.Cut(text, " ")
	var p PeerPolicy
	var err error
	if p.NotReadyFor, err = time.ParseDuration(wait); err != nil {
		return PeerPolicy{}, fmt.Errorf("parse the repair policy %q of a control plane: %w", text, err)
	}

	if p.MinMachineAge, err = time.ParseDuration(age); err != nil {
		return PeerPolicy{}, fmt.Errorf("parse the repair policy %q of a control plane: %w", text, err)
	}

	if p.NotReadyFor < MinPeerPatience || p.MinMachineAge < MinPeerAge {
		return PeerPolicy{}, fmt.Errorf(
			"parse the repair policy %q of a control plane: the least times are %s and %s",
			text, MinPeerPatience, MinPeerAge,
		)
	}

	return p, nil
}

// String returns the policy as the value of the tag slipway.dev/repair of an Auto Scaling group, such as "10m0s 20m0s".
func (p PeerPolicy) String() string {
	if p.Disabled {
		return disabled
	}

	return fmt.Sprintf("%s %s", p.NotReadyFor, p.MinMachineAge)
}

// Stricter returns a policy that replaces a machine only if both policies do. The groups of a control plane have
// different policies while an apply changes them.
func (p PeerPolicy) Stricter(other PeerPolicy) PeerPolicy {
	return PeerPolicy{
		Disabled:      p.Disabled || other.Disabled,
		NotReadyFor:   max(p.NotReadyFor, other.NotReadyFor),
		MinMachineAge: max(p.MinMachineAge, other.MinMachineAge),
	}
}

// Peer is the machine of one slot of the control plane, as another machine of it sees it.
type Peer struct {
	// Slot of the machine.
	Slot string
	// ID is the instance id of the machine in the slot's Auto Scaling group; empty if it has none or several.
	ID string
	// State of the machine in its Auto Scaling group. Only Running is set for a machine that serves.
	State State
	// Launched is the launch time; zero if it is not known.
	Launched time.Time
	// Problem is why the machine does not work and would work if it were replaced; empty if it works.
	Problem string
	// Since is when the problem was first seen without an interruption. Only with a problem.
	Since time.Time
	// Votes is set if the machine's etcd member votes and answers.
	Votes bool
	// Suspended is set if its Auto Scaling group does not replace unhealthy machines, as during a rollout.
	Suspended bool
	// Reported is set if its Auto Scaling group knows that the machine is unhealthy.
	Reported bool
}

// PeerObservation is what the repair of the control plane depends on.
type PeerObservation struct {
	Now time.Time
	// Policy is the control plane's.
	Policy PeerPolicy
	// Self is the instance id of the machine that decides. It never reports itself.
	Self string
	// Peers has one entry for each slot of the control plane, with that of the machine that decides.
	Peers []Peer
	// Busy is why nobody may replace a machine now, such as a rolling update; empty: nothing is in progress.
	Busy string
	// LastID and LastAt are the machine that was reported last and the time; zero: none was.
	LastID string
	LastAt time.Time
}

// PeerDecision is the result of [DecidePeer].
type PeerDecision struct {
	// Report is the machine to report to Auto Scaling as unhealthy; empty: none.
	Report string
	// Reason why it is reported.
	Reason string
	// Held are the machines that should be replaced and are not.
	Held []Held
}

// DecidePeer returns which machine of the control plane is reported to Auto Scaling as unhealthy: at most one, and none
// unless the others have a quorum without it.
func DecidePeer(o PeerObservation) PeerDecision {
	var d PeerDecision
	if o.Policy.Disabled {
		return d
	}

	peers := slices.SortedFunc(slices.Values(o.Peers), func(a, b Peer) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Slot, b.Slot))
	})

	for _, p := range peers {
		if !p.isDue(o) || p.Reported || p.ID == o.Self {
			continue
		}

		switch reason := o.peerObstacle(p); {
		case reason != "":
			d.Held = append(d.Held, Held{Machine: p.name(), Reason: reason})
		case d.Report != "":
			d.Held = append(d.Held, Held{Machine: p.name(), Reason: "machine " + d.Report + " is replaced first"})
		default:
			d.Report = p.ID
			d.Reason = p.Problem + " for " + formatDuration(o.Now.Sub(p.Since))
		}
	}

	return d
}

// isDue reports whether the machine does not work for long enough.
func (p Peer) isDue(o PeerObservation) bool {
	return p.Problem != "" && o.Now.Sub(p.Since) >= o.Policy.NotReadyFor
}

// name returns the instance id, or the slot of a machine without one.
func (p Peer) name() string { return cmp.Or(p.ID, "of slot "+p.Slot) }

// peerObstacle returns why a machine cannot be replaced now; empty: it can.
func (o PeerObservation) peerObstacle(p Peer) string {
	switch {
	case p.ID == "" || p.State != Running:
		return "its Auto Scaling group has not exactly one machine in service"
	case p.Suspended:
		return "its Auto Scaling group has suspended ReplaceUnhealthy"
	case o.Busy != "":
		return o.Busy
	}

	if votes := o.votesWithout(p.Slot); votes < len(o.Peers)/2+1 {
		return fmt.Sprintf("only %d of %d etcd members work without it: no quorum", votes, len(o.Peers))
	}

	for _, other := range o.Peers {
		if reason := o.changeOf(other); reason != "" {
			return reason
		}
	}

	if wait := PeerPause - o.Now.Sub(o.LastAt); !o.LastAt.IsZero() && o.LastID != p.ID && wait > 0 {
		return fmt.Sprintf("machine %s was replaced less than %s ago", o.LastID, formatDuration(PeerPause))
	}

	return ""
}

// votesWithout returns how many members of other slots vote and answer.
func (o PeerObservation) votesWithout(slot string) int {
	votes := 0
	for _, p := range o.Peers {
		if p.Slot != slot && p.Votes {
			votes++
		}
	}

	return votes
}

// changeOf returns whether a machine is being replaced or was a moment ago; empty: neither.
func (o PeerObservation) changeOf(p Peer) string {
	switch {
	case p.ID == "" || p.State != Running || p.Reported:
		return "slot " + p.Slot + " is being changed"
	case p.Launched.IsZero():
		return "EC2 does not list machine " + p.ID
	case o.Now.Sub(p.Launched) < o.Policy.MinMachineAge:
		return fmt.Sprintf("machine %s was launched less than %s ago", p.ID, formatDuration(o.Policy.MinMachineAge))
	}

	return ""
}
