// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"maps"
	"strconv"
	"time"
)

// HoldTime is how long a machine holds the lock without renewing it.
const HoldTime = 2 * time.Minute

const (
	// LockAnnotation has the lock as JSON. Kubernetes refuses a change of an object that somebody else has changed.
	LockAnnotation = "slipway.dev/update-lock"
	// ControlPlaneLease is the name of the Lease in kube-system that has the lock of the control plane.
	ControlPlaneLease = "slipway-control-plane-update"
	// RollingUpdate is the holder of the control plane's lock while a rolling update replaces one of its machines. The
	// cluster's own lock excludes a second update, so that the next process continues with the turn of a killed one.
	RollingUpdate = "rolling-update"
)

// Lock is the record by which machines take turns. The machines of the control plane have one, and all workers have
// another one. A machine changes it only if nobody else has changed it since it was read.
type Lock struct {
	// Holder is the id of the instance whose turn it is; empty: nobody's.
	Holder string `json:"holder,omitempty"`
	// Until is when the holder loses its turn unless it renews it.
	Until time.Time `json:"until,omitzero"`
	// Parallel are the machines that change at the same time, because another one has proven the revision, each with
	// the time at which it loses its place unless it renews it.
	Parallel map[string]time.Time `json:"parallel,omitempty"`
	// Proven is, by group, the revision that a machine of the group has applied.
	Proven map[string]string `json:"proven,omitempty"`
	// Refused is, by group, the revision that a machine of the group could not apply.
	Refused map[string]string `json:"refused,omitempty"`
	// RefusedBy is, by group, the machine that could not apply it, and why.
	RefusedBy map[string]string `json:"refusedBy,omitempty"`
	// AddOns is the serial of the newest revision whose add-ons were applied. Control plane only.
	AddOns int64 `json:"addOns,omitempty"`
}

// Claim asks for the turn of one machine.
type Claim struct {
	// Machine is the instance id.
	Machine string
	// Group of the machine.
	Group string
	// Serial and Document are the revision's.
	Serial   int64
	Document string
	// InParallel lets machines apply at the same time what another machine of the group has applied.
	InParallel bool
}

// revision names the revision of the claim.
func (c Claim) revision() string {
	return strconv.FormatInt(c.Serial, 10) + "-" + c.Document[:min(len(c.Document), 16)]
}

// Turn is the answer to a claim.
type Turn string

// The answers.
const (
	// TurnTake: the machine takes the lock, and goes ahead when it is stored.
	TurnTake Turn = "take"
	// TurnFree: the machine goes ahead next to others, and goes ahead when its place is stored.
	TurnFree Turn = "free"
	// TurnWait: it is another machine's turn.
	TurnWait Turn = "wait"
	// TurnRefused: another machine of the group could not apply the revision.
	TurnRefused Turn = "refused"
)

// RefusedByOther begins the reason of TurnRefused.
const RefusedByOther = "refused by "

// Decide returns whether it is a machine's turn, and why not.
func (l Lock) Decide(c Claim, now time.Time) (Turn, string) {
	revision := c.revision()

	switch {
	case l.Refused[c.Group] == revision:
		return TurnRefused, RefusedByOther + l.RefusedBy[c.Group]
	case c.InParallel && l.Proven[c.Group] == revision && l.countOthers(c.Machine, now) >= MaxParallel:
		return TurnWait, fmt.Sprintf("%d other machines are being changed", MaxParallel)
	case c.InParallel && l.Proven[c.Group] == revision:
		return TurnFree, ""
	case l.IsHeldByOther(c.Machine, now):
		return TurnWait, describeHolder(l.Holder)
	default:
		return TurnTake, ""
	}
}

// IsHeldByOther reports whether it is the turn of another holder than this one.
func (l Lock) IsHeldByOther(machine string, now time.Time) bool {
	return l.Holder != "" && l.Holder != machine && now.Before(l.Until)
}

// describeHolder tells what a machine waits for.
func describeHolder(holder string) string {
	if holder == RollingUpdate {
		return "a rolling update replaces a machine of the control plane"
	}

	return fmt.Sprintf("machine %s is being changed", holder)
}

// Take returns the lock as held by the claim's machine. It also renews the lock.
func (l Lock) Take(c Claim, now time.Time) Lock {
	l.Holder = c.Machine
	l.Until = now.Add(HoldTime).UTC().Truncate(time.Second)

	return l
}

// MaxParallel is how many workers change at the same time.
const MaxParallel = 20

// countOthers counts the other machines that change in parallel.
func (l Lock) countOthers(machine string, now time.Time) int {
	n := 0
	for other, until := range l.Parallel {
		if other != machine && now.Before(until) {
			n++
		}
	}

	return n
}

// Join returns the lock with a place for a machine next to others. It also renews the place, and drops expired ones.
func (l Lock) Join(c Claim, now time.Time) Lock {
	l.Parallel = maps.Clone(l.Parallel)
	maps.DeleteFunc(l.Parallel, func(_ string, until time.Time) bool { return !now.Before(until) })
	if l.Parallel == nil {
		l.Parallel = map[string]time.Time{}
	}

	l.Parallel[c.Machine] = now.Add(HoldTime).UTC().Truncate(time.Second)

	return l
}

// Holds reports whether it is a machine's turn.
func (l Lock) Holds(machine string) bool {
	_, inParallel := l.Parallel[machine]

	return l.Holder == machine || inParallel
}

// Renew returns the lock with more time for a machine whose turn it is.
func (l Lock) Renew(c Claim, now time.Time) Lock {
	if l.Holder == c.Machine {
		return l.Take(c, now)
	}

	if l.Holds(c.Machine) {
		return l.Join(c, now)
	}

	return l
}

// Drop returns the lock without a machine's turn. It says nothing about the revision.
func (l Lock) Drop(machine string) Lock {
	if l.Holder == machine {
		l.Holder = ""
		l.Until = time.Time{}
	}

	if _, ok := l.Parallel[machine]; ok {
		l.Parallel = maps.Clone(l.Parallel)
		delete(l.Parallel, machine)
	}

	return l
}

// Release returns the lock after the turn of a machine. A cause is why it could not apply the revision; empty: it did.
func (l Lock) Release(c Claim, cause string) Lock {
	l = l.Drop(c.Machine)
	l.Proven = maps.Clone(l.Proven)
	l.Refused = maps.Clone(l.Refused)
	l.RefusedBy = maps.Clone(l.RefusedBy)
	if cause == "" {
		l.Proven = withKey(l.Proven, c.Group, c.revision())
		return l
	}

	l.Refused = withKey(l.Refused, c.Group, c.revision())
	l.RefusedBy = withKey(l.RefusedBy, c.Group, "machine "+c.Machine+": "+cause)

	return l
}

func withKey(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}

	m[key] = value

	return m
}
