// SPDX-License-Identifier: Apache-2.0

// Package inventory lists what a cluster consists of: its machines in EC2 and its nodes in Kubernetes, and
// joins the two. [FindMachine] finds a machine by what an operator calls it.
//
// Reading ([Reader]) and deciding (everything else) are separate: the latter is pure. The package does not
// judge whether a machine is healthy; packages health and validate do.
package inventory

import (
	"cmp"
	"slices"
	"time"
)

// The roles of machines, as in their tags.
const (
	RoleControlPlane = "control-plane"
	RoleWorker       = "worker"
	RoleBastion      = "bastion"
)

// The states of a machine's node.
const (
	// NodeReady is a node whose kubelet reports it ready.
	NodeReady = "Ready"
	// NodeNotReady is a node that is not ready.
	NodeNotReady = "NotReady"
	// NodeUnknown is a node whose kubelet has stopped reporting.
	NodeUnknown = "Unknown"
	// NodeMissing is a machine without a node: it has not joined, or its node was deleted.
	NodeMissing = "NotJoined"
)

// The health of a machine.
const (
	// Healthy is a machine whose node is Ready and whose agent reports nothing.
	Healthy = "healthy"
	// HealthWarning is a machine that serves, and whose agent warns of something.
	HealthWarning = "warning"
	// HealthFailed is a machine of which the agent reports that a part does not work.
	HealthFailed = "failed"
	// HealthNotReady is a machine whose node is not Ready or does not report.
	HealthNotReady = "not ready"
	// HealthNotJoined is a machine without a node.
	HealthNotJoined = "not joined"
)

// judgeHealth returns the health of a machine that is to have a node.
func judgeHealth(m Machine, hasWarning bool) string {
	switch {
	case m.State != "" && m.State != "running":
		return ""
	case m.NodeState == NodeMissing:
		return HealthNotJoined
	case m.NodeState != NodeReady:
		return HealthNotReady
	case m.Problem != "":
		return HealthFailed
	case hasWarning:
		return HealthWarning
	default:
		return Healthy
	}
}

// Machine is an EC2 instance of a cluster.
type Machine struct {
	// ID is the instance id.
	ID string `json:"id"`
	// Group is the name of its instance group.
	Group string `json:"group"`
	// Slot of the control plane; empty for others.
	Slot string `json:"slot,omitempty"`
	// Role is a Role constant.
	Role string `json:"role"`
	// State is EC2's, such as running.
	State string `json:"state"`
	// MachineType is the EC2 instance type.
	MachineType string `json:"machineType"`
	// Zone is the availability zone.
	Zone string `json:"zone"`
	// PrivateAddress in the VPC; empty for a terminated machine.
	PrivateAddress string `json:"privateAddress,omitempty"`
	// PublicAddress, if the machine has one.
	PublicAddress string `json:"publicAddress,omitempty"`
	// Image is the AMI that it was launched from.
	Image string `json:"image"`
	// Spot is set for a spot instance.
	Spot bool `json:"spot,omitempty"`
	// LaunchedAt is when it was launched.
	LaunchedAt time.Time `json:"launchedAt"`
	// TemplateVersion is the version of the launch template that it was launched from; empty if unknown.
	TemplateVersion string `json:"templateVersion,omitempty"`
	// Outdated is set if its launch template has a newer version, which a rolling update gives the machine.
	Outdated bool `json:"outdated,omitempty"`
	// Node is the name of its Kubernetes node; empty for a bastion.
	Node string `json:"node,omitempty"`
	// NodeState is a Node constant; empty for a bastion, for a machine that is gone, or if the Kubernetes API was not
	// read.
	NodeState string `json:"nodeState,omitempty"`
	// Problem is the first failed condition of the agent's last report; empty if there is none.
	Problem string `json:"problem,omitempty"`
	// Health is a Health constant; empty for a machine that does not run, a bastion, or if the API was not read.
	Health string `json:"health,omitempty"`
	// ReportedAt is when the agent reported last; zero if it never did.
	ReportedAt time.Time `json:"reportedAt,omitzero"`
	// Version of Kubernetes that the kubelet runs; empty if there is no node.
	Version string `json:"version,omitempty"`
	// Revision of the node document that the machine has.
	Revision Revision `json:"revision,omitzero"`
}

// Revision tells which node document a machine has and which one it is to have.
type Revision struct {
	// Current is the SHA-256 of the document that the machine follows; empty if its agent has not reported it.
	Current string `json:"current,omitempty"`
	// Desired is the SHA-256 of the current document of its group; empty if none was published.
	Desired string `json:"desired,omitempty"`
	// State is the agent's: current, waiting, applying, pending, refused or unknown.
	State string `json:"state,omitempty"`
	// Pending are the settings that need a new machine.
	Pending []string `json:"pending,omitempty"`
	// Cause why the machine does not follow the desired document; empty if it does.
	Cause string `json:"cause,omitempty"`
}

// AddDesired sets the current node document of each group, by its SHA-256, on the group's machines.
func AddDesired(machines []Machine, documents map[string]string) {
	for i := range machines {
		machines[i].Revision.Desired = documents[machines[i].Group]
	}
}

// Name returns what an operator calls the machine: group and slot on the control plane, else its id.
func (m Machine) Name() string {
	if m.Slot != "" {
		return m.Group + "-" + m.Slot
	}

	return m.ID
}

// stateTerminated is EC2's state of a machine that does not exist any more.
const stateTerminated = "terminated"

// IsGone reports whether the machine is terminated or about to be.
func (m Machine) IsGone() bool { return m.State == stateTerminated || m.State == "shutting-down" }

// Node is a Kubernetes node.
type Node struct {
	// Name of the node.
	Name string `json:"name"`
	// State is a Node constant.
	State string `json:"state"`
	// Reason why it is not ready.
	Reason string `json:"reason,omitempty"`
	// Cordoned is set if no new pods are scheduled on it.
	Cordoned bool `json:"cordoned,omitempty"`
	// Role is a Role constant.
	Role string `json:"role"`
	// Group is the name of its instance group; empty if no machine of the cluster runs it.
	Group string `json:"group,omitempty"`
	// Machine is the instance id, from the provider id.
	Machine string `json:"machine"`
	// Zone is the availability zone.
	Zone string `json:"zone,omitempty"`
	// Version of the kubelet.
	Version string `json:"version"`
	// Address is its internal IP address.
	Address string `json:"address,omitempty"`
	// OSImage, Kernel and Runtime are as the kubelet reports them.
	OSImage string `json:"osImage,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
	Runtime string `json:"runtime,omitempty"`
	// CreatedAt is when it joined.
	CreatedAt time.Time `json:"createdAt"`
	// Warned is set if the agent's last report has a warning.
	Warned bool `json:"warned,omitempty"`
	// Problem and ReportedAt are from the agent's last report.
	Problem    string    `json:"problem,omitempty"`
	ReportedAt time.Time `json:"reportedAt,omitzero"`
	// Revision of the node document, from the agent's last report.
	Revision Revision `json:"revision,omitzero"`
}

// Join adds to each machine what its node says, and to each node the group of its machine. Pass nil nodes if
// the Kubernetes API was not read; an empty list says that no machine has joined.
func Join(machines []Machine, nodes []Node) ([]Machine, []Node) {
	machines = slices.Clone(machines)
	outNodes := slices.Clone(nodes)
	byMachine := map[string]int{}
	for i, n := range outNodes {
		byMachine[n.Machine] = i
	}

	for i := range machines {
		m := &machines[i]
		if m.Role == RoleBastion || nodes == nil || m.State == stateTerminated {
			continue
		}

		at, joined := byMachine[m.ID]
		if !joined && m.IsGone() {
			continue
		}

		if !joined {
			m.NodeState = NodeMissing
			m.Health = judgeHealth(*m, false)
			continue
		}

		n := &outNodes[at]
		n.Group = m.Group
		n.Role = m.Role
		m.Node = n.Name
		m.NodeState = n.State
		m.Problem = n.Problem
		m.ReportedAt = n.ReportedAt
		m.Version = n.Version
		m.Revision = n.Revision
		m.Health = judgeHealth(*m, n.Warned)
	}

	return machines, outNodes
}

// Sort orders machines by role (control plane first, bastions last), group, slot and id, and nodes likewise.
func Sort(machines []Machine, nodes []Node) {
	rank := func(role string) int {
		return slices.Index([]string{RoleControlPlane, RoleWorker, RoleBastion}, role)
	}
	slices.SortFunc(machines, func(a, b Machine) int {
		return cmp.Or(
			cmp.Compare(rank(a.Role), rank(b.Role)),
			cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Slot, b.Slot),
			cmp.Compare(a.ID, b.ID),
		)
	})

	slices.SortFunc(nodes, func(a, b Node) int {
		return cmp.Or(
			cmp.Compare(rank(a.Role), rank(b.Role)),
			cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Name, b.Name),
		)
	})
}
