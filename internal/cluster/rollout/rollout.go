// SPDX-License-Identifier: Apache-2.0

// Package rollout decides how the machines of a cluster are replaced one after the other, so that each of them
// gets the newest launch template.
//
// Decide is a pure function from an [Observation] to the next steps. It keeps no state: what has begun is
// visible on the machines themselves (a node is cordoned and has the annotation [StartedAnnotation]), so that
// another process can continue after a crash. Control-plane machines are replaced first and one at a time, and
// only while every other etcd member is healthy; workers follow in parallel, group by group, within
// [Policy.MaxUnavailable].
package rollout

import "time"

// StartedAnnotation is set on a node when its replacement begins. Its value is the time, in RFC 3339.
const StartedAnnotation = "slipway.dev/rolling-update"

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
	// NodeReady is set if the node is Ready.
	NodeReady bool
	// Started is set once the replacement of this machine has begun: [StartedAnnotation] is on the node.
	Started bool
	// Drained is set if the node is cordoned and has no pods left that must be evicted.
	Drained bool
	// Member is set if the machine's etcd member is healthy and votes. Control plane only.
	Member bool
	// BootStage is the last stage that the machine reported, for messages; empty if unknown.
	BootStage string
}

// isServing reports whether a machine does its work: Ready, and with a healthy member if it has one.
func (m Machine) isServing() bool {
	return m.State == StateRunning && m.NodeReady && (m.Slot == "" || m.Member)
}

// Group is what was observed of one Auto Scaling group. Each slot of the control plane has its own.
type Group struct {
	// Name of the instance group.
	Name string
	// Slot of the control plane; empty for workers.
	Slot string
	// Size is the desired capacity.
	Size int
	// Version of the launch template that new machines are launched from.
	Version string
	// Policy of the group. The control plane always has MaxUnavailable 1.
	Policy Policy
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

// Policy limits the replacement of a group's machines.
type Policy struct {
	// MaxUnavailable is how many machines of the group may be missing at once, at least 1.
	MaxUnavailable int
}

// Observation is the complete input of a decision.
type Observation struct {
	// Now is when the facts were read.
	Now time.Time
	// Groups in the order in which they are updated; the control plane first.
	Groups []Group
	// Machines of the groups.
	Machines []Machine
	// APIReady is set if the Kubernetes API answers. Without it, nothing is known about nodes.
	APIReady bool
	// FailedGates are checks that must pass before a further machine is replaced, such as "pod kube-system/coredns
	// is not running".
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
}

// ActionType is what to do with a machine.
type ActionType string

// The action types.
const (
	// ActionDrain marks the node as started, cordons it and evicts its pods. It is safe to repeat.
	ActionDrain ActionType = "drain"
	// ActionTerminate terminates the machine. Its Auto Scaling group launches the replacement.
	ActionTerminate ActionType = "terminate"
)

// Action is a step for one machine.
type Action struct {
	// Type of the step.
	Type ActionType
	// Machine to act on.
	Machine Machine
	// Reason for the step, for people.
	Reason string
}

// Decision is what to do next. Without actions and with an empty Failure and Waiting, the update is complete.
type Decision struct {
	// Actions may be carried out in parallel.
	Actions []Action
	// Waiting are the reasons why no further machine is replaced now.
	Waiting []string
	// Failure is why the update must stop; empty otherwise.
	Failure string
}

// IsDone reports whether every machine is up to date and serving.
func (d Decision) IsDone() bool {
	return len(d.Actions) == 0 && len(d.Waiting) == 0 && d.Failure == ""
}
