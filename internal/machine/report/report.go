// SPDX-License-Identifier: Apache-2.0

// Package report defines what an agent reports about its machine: measurements (kubelet, API server, etcd
// member, disks, certificates) and the conditions that follow from them.
//
// An agent publishes its [Report] in Kubernetes: as an annotation of its Node, and on the control plane also
// as an annotation of the member's Lease. While the API does not answer, it writes a shortened report to the
// serial console. The package is pure: it measures nothing and writes nothing.
package report

import "time"

// Annotation is the key of the annotation whose value is a Report as JSON.
const Annotation = "slipway.dev/report"

// DesiredAnnotation is the key of the annotation of a Node that tells its agent to look for a new revision of its node
// document at once. Its value is the SHA-256 of that document.
const DesiredAnnotation = "slipway.dev/desired-document"

// RollingUpdateAnnotation is set on a Node when a rolling update begins to replace its machine, and has cordoned it. Its
// value is the instance id.
const RollingUpdateAnnotation = "slipway.dev/rolling-update"

// HandOverAnnotation is the key of the annotation of the Node of a control-plane machine that asks its agent to hand
// over the slot. Its value is the instance id of the machine that takes over, a space, and the time (RFC 3339).
const HandOverAnnotation = "slipway.dev/hand-over"

// StandbyLeasePrefix begins the names of the Leases in kube-system by which control-plane machines announce that they
// have prepared everything but the volume of their slot, whose name follows. The holder is the instance id.
const StandbyLeasePrefix = "slipway-standby-"

// HandOver is how a slot of the control plane went from one machine to another.
type HandOver struct {
	// From and To are the instance ids of the machines.
	From string `json:"from"`
	To   string `json:"to"`
	// StoppedAt is when the machine before stopped its etcd member.
	StoppedAt time.Time `json:"stoppedAt"`
	// MissingSeconds is the time from then until the member had a quorum again.
	MissingSeconds float64 `json:"missingSeconds,omitempty"`
}

// NodeCondition is the type of the Node condition that is True while no condition of the machine failed.
const NodeCondition = "MachineHealthy"

// How often reports are published.
const (
	// Interval is the time between two measurements, and between two reports of a control-plane machine.
	Interval = 5 * time.Second
	// WorkerRefresh is the longest time between two reports of a worker on its Node, which many programs watch.
	// A worker also reports each change after at most Interval. In the meantime its heartbeats show that its
	// agent works, see [Report.Heartbeats].
	WorkerRefresh = 5 * time.Minute
)

// Report is the state of one machine at one time.
type Report struct {
	// Time of the measurement by the machine's clock.
	Time time.Time `json:"time"`
	// NextSeconds is the number of seconds until the next report at the latest.
	NextSeconds int `json:"nextSeconds"`
	// Machine is the EC2 instance id.
	Machine string `json:"machine"`
	// Node is the name of the Kubernetes node.
	Node string `json:"node"`
	// Group is the name of the instance group.
	Group string `json:"group"`
	// Slot of the control plane; empty for workers.
	Slot string `json:"slot,omitempty"`
	// Heartbeats is set by a worker while the control plane takes its heartbeats, one each Interval.
	Heartbeats bool `json:"heartbeats,omitempty"`
	// Heard is, on the control plane, by node name the number of seconds since the worker's last heartbeat to
	// this machine. Workers send theirs to one machine at a time.
	Heard map[string]int `json:"heard,omitempty"`
	// ListeningSeconds is, on the control plane, how long ago the agent began to take heartbeats.
	ListeningSeconds int `json:"listeningSeconds,omitempty"`
	// Conditions of the machine's components, sorted by component.
	Conditions []Condition `json:"conditions"`
	// Kubelet of the machine.
	Kubelet Service `json:"kubelet"`
	// Containerd is the container runtime.
	Containerd Service `json:"containerd"`
	// APIServer of the machine; nil on workers.
	APIServer *APIServer `json:"apiServer,omitempty"`
	// Etcd is the member of the machine; nil on workers.
	Etcd *Etcd `json:"etcd,omitempty"`
	// HandOver is how a control-plane machine got its slot from the one before it; nil if it was not handed over.
	HandOver *HandOver `json:"handOver,omitempty"`
	// Disks of the machine, sorted by mount point.
	Disks []Disk `json:"disks,omitempty"`
	// Certificates of the machine, sorted by name.
	Certificates []Certificate `json:"certificates,omitempty"`
	// Versions of what runs.
	Versions Versions `json:"versions"`
	// Revision of the node document that the machine follows.
	Revision Revision `json:"revision,omitzero"`
}

// RevisionState is how far a machine follows the current revision of its group's node document.
type RevisionState string

// The states of a revision.
const (
	// RevisionCurrent: the machine has the whole document of the revision.
	RevisionCurrent RevisionState = "current"
	// RevisionWaiting: the machine waits for its turn.
	RevisionWaiting RevisionState = "waiting"
	// RevisionApplying: the machine is applying the revision.
	RevisionApplying RevisionState = "applying"
	// RevisionPending: a part of the revision needs a new machine. Everything else is applied.
	RevisionPending RevisionState = "pending"
	// RevisionRefused: the machine, or another one of its group, could not apply the revision.
	RevisionRefused RevisionState = "refused"
	// RevisionUnknown: the machine knows no revision: none was published, or the machine's document is newer.
	RevisionUnknown RevisionState = "unknown"
)

// Revision is how a machine follows the revisions of its group's node document.
type Revision struct {
	// State of the machine.
	State RevisionState `json:"state"`
	// Serial of the revision that the machine followed last; zero: none.
	Serial int64 `json:"serial,omitempty"`
	// Followed is the SHA-256 of that revision's document, or of the document that the machine booted with.
	Followed string `json:"followed"`
	// Desired is the SHA-256 of the current revision's document; empty: not known.
	Desired string `json:"desired,omitempty"`
	// DesiredSerial is the serial of the current revision; zero: not known. It grows when a refused document is to be
	// tried again.
	DesiredSerial int64 `json:"desiredSerial,omitempty"`
	// Pending are the settings of Followed that need a new machine, sorted.
	Pending []string `json:"pending,omitempty"`
	// Cause why Desired is not followed; empty if it is.
	Cause string `json:"cause,omitempty"`
}

// NeedsNoMachine reports whether a machine has everything of a document (by its SHA-256) without being replaced.
func (r Revision) NeedsNoMachine(document string) bool {
	return r.State == RevisionCurrent && r.Followed == document && len(r.Pending) == 0
}

// State of a condition.
type State string

// The states of a condition, from good to bad.
const (
	// OK means that the component works.
	OK State = "ok"
	// Warning means that the component works, and that somebody has to do something before it fails.
	Warning State = "warning"
	// Failed means that the component does not work.
	Failed State = "failed"
)

// Component names what a condition is about.
type Component string

// The components of a machine.
const (
	Kubelet      Component = "kubelet"
	Containerd   Component = "containerd"
	EtcdMember   Component = "etcd"
	KubeAPI      Component = "kube-apiserver"
	DiskSpace    Component = "disk"
	Certificates Component = "certificates"
	EtcdVolume   Component = "etcd volume"                 // set by the agent's task that mounts the volume
	OwnedFiles   Component = "restored files"              // set by the agent's task that restores what it owns
	NodeDocument Component = "node document"               // set by the agent's task that follows the revisions
	Repair       Component = "automatic repair"            // set by the elected agent of the control plane
	PeerRepair   Component = "repair of the control plane" // set by the elected agent of the control plane
)

// Task returns the component of a periodic task of the agent. It has a condition only while the task fails.
func Task(name string) Component { return Component("agent task " + name) }

// Condition is the state of one component of a machine.
type Condition struct {
	// Component that this is about.
	Component Component `json:"component"`
	// State of the component.
	State State `json:"state"`
	// Cause says why it is not OK; empty if it is.
	Cause string `json:"cause,omitempty"`
	// Next is what the operator has to do; empty if nothing.
	Next string `json:"next,omitempty"`
	// Since is when the component got into this state, by the machine's clock.
	Since time.Time `json:"since"`
}

// Service is a program that systemd runs.
type Service struct {
	// Unit is systemd's state of it, such as active, failed or inactive; empty if it was not read.
	Unit string `json:"unit,omitempty"`
	// Error of its health check; empty if it succeeded.
	Error string `json:"error,omitempty"`
}

// APIServer is the result of /readyz?verbose of the machine's own API server.
type APIServer struct {
	// Ready means that every check succeeded.
	Ready bool `json:"ready"`
	// Error why it did not answer; empty if it did.
	Error string `json:"error,omitempty"`
	// FailedChecks are the names of its failed checks, such as etcd.
	FailedChecks []string `json:"failedChecks,omitempty"`
}

// Etcd is the machine's etcd member.
type Etcd struct {
	// Error why the member did not answer; empty if it did.
	Error string `json:"error,omitempty"`
	// Quorum means that the member answered a linearizable read.
	Quorum bool `json:"quorum"`
	// MemberID in hex.
	MemberID string `json:"memberID,omitempty"`
	// LeaderID in hex; empty if the member knows no leader.
	LeaderID string `json:"leaderID,omitempty"`
	// Learner does not vote yet.
	Learner bool `json:"learner,omitempty"`
	// RaftIndex is the last index of the member's Raft log.
	RaftIndex uint64 `json:"raftIndex,omitempty"`
	// DBSize and Quota of the database in bytes.
	DBSize int64 `json:"dbSize,omitempty"`
	Quota  int64 `json:"quota,omitempty"`
	// Alarms that are raised, such as NOSPACE.
	Alarms []string `json:"alarms,omitempty"`
	// SyncMillis is a time that 1% of the writes of etcd's log to its disk exceeded in the last minutes; 0: not known.
	SyncMillis int64 `json:"syncMillis,omitempty"`
	// Version of etcd.
	Version string `json:"version,omitempty"`
	// Peers are the other members as this machine sees them, sorted by slot.
	Peers []Peer `json:"peers,omitempty"`
}

// Leader reports whether the member is the leader.
func (e Etcd) Leader() bool { return e.LeaderID != "" && e.LeaderID == e.MemberID }

// Peer is another etcd member as this machine sees it.
type Peer struct {
	// Slot of the member.
	Slot string `json:"slot"`
	// Error why it did not answer; empty if it did.
	Error string `json:"error,omitempty"`
}

// Disk is a mounted file system.
type Disk struct {
	// Path is the mount point.
	Path string `json:"path"`
	// UsedBytes and SizeBytes as unprivileged programs see them.
	UsedBytes int64 `json:"usedBytes"`
	SizeBytes int64 `json:"sizeBytes"`
	// InodesUsedPercent is 0 for file systems without a fixed number of inodes.
	InodesUsedPercent int `json:"inodesUsedPercent,omitempty"`
	// ReadOnly is set if the file system is mounted read-only.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Error why it could not be read; empty if it could.
	Error string `json:"error,omitempty"`
}

// UsedPercent returns how much of the disk is in use, rounded down.
func (d Disk) UsedPercent() int {
	if d.SizeBytes <= 0 {
		return 0
	}

	return int(d.UsedBytes * 100 / d.SizeBytes)
}

// Certificate is a certificate on the machine.
type Certificate struct {
	// Name is its file name without directory and suffix, such as apiserver.
	Name string `json:"name"`
	// NotAfter is when it expires.
	NotAfter time.Time `json:"notAfter"`
	// RenewAt is when the agent renews it; zero for a CA.
	RenewAt time.Time `json:"renewAt,omitzero"`
	// CA is set for the certificate of an authority.
	CA bool `json:"ca,omitempty"`
}

// Versions of what runs on a machine.
type Versions struct {
	// Kubernetes of the node document.
	Kubernetes string `json:"kubernetes"`
	// Etcd as the member reports it.
	Etcd string `json:"etcd,omitempty"`
	// Document is the SHA-256 of the node document that the machine has.
	Document string `json:"document"`
}

// IsMachineHealthy reports whether no condition has failed.
func (r Report) IsMachineHealthy() bool {
	for _, c := range r.Conditions {
		if c.State == Failed {
			return false
		}
	}

	return true
}

// Condition returns the condition of a component.
func (r Report) Condition(component Component) (Condition, bool) {
	for _, c := range r.Conditions {
		if c.Component == component {
			return c, true
		}
	}

	return Condition{}, false
}
