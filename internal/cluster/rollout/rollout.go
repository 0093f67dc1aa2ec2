// SPDX-License-Identifier: Apache-2.0

// Package rollout decides how the machines of a cluster are replaced one after the other, so that each of them
// gets the newest launch template.
//
// Decide is a pure function from an [Observation] to the next steps. It keeps no state: what has begun is
// visible on the machines themselves (a node is cordoned and has the annotation [StartedAnnotation]), so that
// another process can continue after a crash. Control-plane machines are replaced first and one at a time, and
// only while every other etcd member is healthy; workers follow in parallel batches, all groups at once, within
// the group's [Policy].
package rollout

import (
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// StartedAnnotation is set on a node when its replacement begins. Its value is the instance id.
const StartedAnnotation = report.RollingUpdateAnnotation

// OutdatedTaint is the key of the taint, with effect PreferNoSchedule, of nodes that an update will replace, so
// that evicted pods move to new nodes if they can.
const OutdatedTaint = "slipway.dev/outdated"

// MachineState is the state of a machine in EC2 and in its Auto Scaling group.
type MachineState string

// The states of machines.
const (
	// StateStarting is a machine that was launched and does not run yet.
	StateStarting MachineState = "starting"
	// StateRunning is a machine that runs.
	StateRunning MachineState = "running"
	// StateTerminating is a machine that is being terminated. It does not count for its group.
	StateTerminating MachineState = "terminating"
)

// MemberState is what is known of an etcd member.
type MemberState string

// The states of members.
const (
	// MemberUnknown is a member of which nothing recent is known. It may vote.
	MemberUnknown MemberState = ""
	// MemberHealthy is a member that votes and has a quorum.
	MemberHealthy MemberState = "healthy"
	// MemberLost is a member that does not answer, by a recent report: its end takes nothing from the quorum.
	MemberLost MemberState = "lost"
)

// Machine is what was observed of one machine of an Auto Scaling group.
type Machine struct {
	// ID is the instance id.
	ID string
	// Group is the name of the instance group.
	Group string
	// Slot of the control plane; empty for workers.
	Slot string
	// Zone is the availability zone.
	Zone string
	// NodeName is the name of the Kubernetes node; empty until it has registered.
	NodeName string
	// State in EC2.
	State MachineState
	// Launched is when EC2 launched the machine.
	Launched time.Time
	// Version of the launch template that it was launched from.
	Version string
	// IsFollowing is set if the template that the machine was launched from differs from the group's only in the node
	// document, and the machine has applied that document itself. Such a machine is up to date.
	IsFollowing bool
	// Followed is the SHA-256 of the node document that the machine has applied last, by its own report; empty if it does
	// not report that.
	Followed string
	// DiffersInDocument is set if the machine's template differs from the group's only in the node document.
	DiffersInDocument bool
	// IsApplying is set if the machine is applying its group's node document now, or waits for its turn.
	IsApplying bool
	// RefusedDocument is why the machine could not apply its group's node document; empty if it has not refused it.
	RefusedDocument string
	// RefusedSerial is the serial of the revision with that document.
	RefusedSerial int64
	// IsUnaware is set if the machine follows node documents and has not read yet that its group has a new one.
	IsUnaware bool
	// Pending are the settings of its new node document that the machine cannot apply itself, for messages.
	Pending []string
	// NodeReady is set if the node is Ready.
	NodeReady bool
	// ReadySince is when the node became Ready; zero if it is not or if that is unknown.
	ReadySince time.Time
	// DownSince is since when the machine does not serve; zero if it does, or if that is not known.
	DownSince time.Time
	// NeverReady is set if the node has registered and was never Ready.
	NeverReady bool
	// Marked is set if the node has the [OutdatedTaint].
	Marked bool
	// Excluded is set if somebody else has taken the node out of the load balancers of Services.
	Excluded bool
	// Detached is set if the machine was detached from its Auto Scaling group to make room for a new one.
	Detached bool
	// Started is set once the replacement of this machine has begun: [StartedAnnotation] is on the node.
	Started bool
	// Drained is set if the node is cordoned and has no pods left that must be evicted.
	Drained bool
	// Member is what is known of the machine's etcd member. Control plane only.
	Member MemberState
	// Prepared is set if the machine has prepared everything but the volume of its slot, which another machine has.
	Prepared bool
	// HandOverTo is the machine to which this one was asked to hand over its slot; empty if it was not.
	HandOverTo string
	// HandOverSince is when it was asked.
	HandOverSince time.Time
	// DetachedSince is when the machine was detached; zero if it was not or if that is unknown.
	DetachedSince time.Time
	// MemberMissing is how long the etcd member was missing when the machine before handed over the slot; 0 if it
	// did not.
	MemberMissing time.Duration
	// BootStage is the last stage that the machine reported, for messages; empty if unknown.
	BootStage string
}

// IsServing reports whether a machine does its work: Ready, and with a healthy member if it has one.
func (m Machine) IsServing() bool {
	return m.State == StateRunning && m.NodeReady && (m.Slot == "" || m.Member == MemberHealthy)
}

// Group is what was observed of one Auto Scaling group. Each slot of the control plane has its own.
type Group struct {
	// Name of the instance group.
	Name string
	// Slot of the control plane; empty for workers.
	Slot string
	// Size is the desired capacity.
	Size int
	// Version of the launch template that all machines are to have.
	Version string
	// Launches is the version that new machines are launched from. It is an earlier one than Version until the update begins
	// with the group, so that a machine that ends before comes back as it was. Empty: Version.
	Launches string
	// Avoided is the newest version, if the group does not move to it because a rollback has returned from it; else empty.
	Avoided string
	// Document is the SHA-256 of the node document that new machines get; empty if it is not known.
	Document string
	// Policy of the group. The control plane is always replaced one machine at a time.
	Policy Policy
	// FailedGates are checks that must pass before a further machine of the group is replaced.
	FailedGates []string
	// NoCapacity is why no machine can be launched in addition; empty if none is known. Set only while a machine of
	// the group is detached and its replacement is missing.
	NoCapacity string
}

// isControlPlane reports whether the group is a slot of the control plane.
func (g Group) isControlPlane() bool { return g.Slot != "" }

// name returns the group's name for messages, with the slot if it has one.
func (g Group) name() string {
	if g.Slot == "" {
		return g.Name
	}

	return g.Name + "-" + g.Slot
}

// Policy limits the replacement of a group's machines. Numbers of machines are for workers only, except that a
// control-plane machine hands over its slot to a prepared one if MaxSurge is not 0.
type Policy struct {
	// MaxUnavailable is how many machines of the group may be missing at once. 0 counts as 1 unless MaxSurge
	// is set.
	MaxUnavailable int
	// MaxSurge is how many machines may run in addition to the group's size.
	MaxSurge int
	// Canary is how many machines are replaced, and must serve, before all others. 0 counts as 1.
	Canary int
	// PauseBetween is the time between the moment at which a new machine is Ready and the next drain.
	PauseBetween time.Duration
	// MaxFailures is the number of machines that do not join in time after which the update stops. 0 counts
	// as 1. A control plane stops after one.
	MaxFailures int
}

// maxMissing returns how many machines may be missing.
func (p Policy) maxMissing() int {
	if p.MaxSurge > 0 {
		return max(0, p.MaxUnavailable)
	}

	return max(1, p.MaxUnavailable)
}

// Observation is the complete input of a decision.
type Observation struct {
	// Now is when the facts were read.
	Now time.Time
	// Groups in the order in which they are updated; the control plane first.
	Groups []Group
	// Machines of the groups.
	Machines []Machine
	// Changing is the machine of the control plane that has the update lock, because it restarts components for its node
	// document; empty if none has.
	Changing string
	// Alarms of etcd, such as NOSPACE.
	Alarms []string
	// APIReady is set if the Kubernetes API answers. Without it, nothing is known about nodes.
	APIReady bool
	// FailedGates are checks that must pass before a further machine of any group is replaced, such as "pod
	// kube-system/coredns is not running".
	FailedGates []string
}

// Options are the limits of a whole rolling update.
type Options struct {
	// Force also replaces machines that have the newest launch template and were launched before this time.
	// Zero: only machines with an older launch template.
	Force time.Time
	// JoinTimeout is how long a new machine may take until it is Ready. It is required.
	JoinTimeout time.Duration
	// Only are the groups to update; empty: all.
	Only []string
	// Stopping is set once the update was asked to stop: only replacements that have begun are completed.
	Stopping bool
}

// ActionType is what to do with a machine.
type ActionType string

// The action types.
const (
	// ActionDrain marks the node as started, cordons it and evicts its pods. It is safe to repeat.
	ActionDrain ActionType = "drain"
	// ActionTerminate terminates the machine. Its Auto Scaling group launches the replacement, unless the
	// machine is detached.
	ActionTerminate ActionType = "terminate"
	// ActionDetach detaches the machine from its Auto Scaling group, which launches a new one in its place.
	// The machine keeps serving.
	ActionDetach ActionType = "detach"
	// ActionMark sets the [OutdatedTaint] on the machine's node.
	ActionMark ActionType = "mark"
	// ActionUnmark removes it.
	ActionUnmark ActionType = "unmark"
	// ActionHandOver asks the machine to hand over its slot to the machine Successor. It is safe to repeat.
	ActionHandOver ActionType = "hand-over"
)

// Action is a step for one machine.
type Action struct {
	// Type of the step.
	Type ActionType
	// Machine to act on.
	Machine Machine
	// Reason for the step, for people.
	Reason string
	// Successor takes over the slot; only for ActionHandOver.
	Successor string
}

// begins reports whether the step takes a further machine from service or launches one.
func (a Action) begins() bool {
	m := a.Machine
	switch a.Type {
	case ActionDetach:
		return true
	case ActionDrain:
		isSurplus := m.Slot != "" && m.Detached

		return !m.Started && !isSurplus

	case ActionTerminate: // a worker that does not serve
		return m.Slot == "" && !m.Started && !m.Detached
	case ActionMark, ActionUnmark, ActionHandOver:
	}

	return false
}

// Decision is what to do next. Without actions and with an empty Failure and Waiting, the update is complete.
type Decision struct {
	// Actions may be carried out in parallel.
	Actions []Action
	// Waiting are the reasons why no further machine is replaced now.
	Waiting []string
	// Failure is why the update must stop; empty otherwise.
	Failure string
	// Failed are the machines that did not join in time.
	Failed []Machine
	// PausedUntil is when the pause of a group ends, if only that is waited for; zero otherwise.
	PausedUntil time.Time
}

// IsDone reports whether every machine is up to date and serving, or, if the update was asked to stop, whether
// no replacement is in progress.
func (d Decision) IsDone() bool {
	return len(d.Actions) == 0 && len(d.Waiting) == 0 && d.Failure == ""
}

// Begins reports whether the decision takes a further machine from service or launches one, for which gates must
// pass.
func (d Decision) Begins() bool { return slices.ContainsFunc(d.Actions, Action.begins) }
