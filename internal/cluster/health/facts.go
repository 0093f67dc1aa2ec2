// SPDX-License-Identifier: Apache-2.0

// Package health checks the health of a cluster from [Facts]: machines and their agents' reports, etcd
// members, API servers, targets of load balancers, nodes and system pods. Each [Check] that is not OK has a
// cause and, if there is one, a next step. The package is pure: it reads and changes nothing.
package health

import (
	"math"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// Facts is the observed state of a cluster at one time.
type Facts struct {
	// Now is when the facts were read: by the API server's clock if it answered.
	Now       time.Time
	Groups    []Group    // that should run
	Instances []Instance // of the cluster, bastions included
	APIError  string     // why the API did not answer; empty if it did
	// Reports are the newest reports of the agents, by instance id: from the API, or else from consoles.
	Reports map[string]MachineReport
	// Targets of the load balancers of the API.
	Targets []Target
	// Nodes, Members and Pods are read from the API; empty if it did not answer.
	Nodes   []Node
	Members []Member
	Pods    []Pod
	// Backups of etcd; nil if they were not read.
	Backups *Backups
	// Recovery is what machines do about a missing quorum of etcd; nil if it was not read.
	Recovery *Recovery
	// Unread lists what could not be read and why, such as the console of a machine.
	Unread []Unread
}

// Group is a group of machines that should run. Each control-plane slot is a group of size one.
type Group struct {
	Name           string // of the instance group
	Slot           string // of the control plane; empty for workers
	Size           int    // minimal number of running machines
	ScalingFailure string // the newest failed scaling activity; empty if there is none
}

// Instance is an EC2 instance.
type Instance struct {
	ID       string
	Group    string        // name of the instance group
	Slot     string        // of the control plane; empty for others
	State    string        // EC2's, such as running
	Why      string        // EC2's reason of the state, such as a spot interruption; may be empty
	NodeName string        // of its Kubernetes node
	Bastion  bool          // does not run Kubernetes
	Reports  []StageReport // of its boot, oldest first; empty if they were not read
}

// StageReport is one report that the agent or the boot script wrote to the serial console.
type StageReport struct {
	Time  time.Time `json:"time"`            // by the machine's clock
	Stage string    `json:"stage"`           // such as verify
	State string    `json:"state"`           // running, done or failed
	Error string    `json:"error,omitempty"` // if State is failed
	Hint  string    `json:"hint,omitempty"`  // how to fix it
}

// MachineReport is the newest report of a machine's agent.
type MachineReport struct {
	report.Report
	// PublishedAt is when the agent published it, or wrote it to the console.
	PublishedAt time.Time
	// FromConsole is set if the report was read from the serial console, and so is shortened.
	FromConsole bool
}

// Target is a machine behind a load balancer of the API.
type Target struct {
	Group       string // name of the target group
	Instance    string // instance id
	State       string // AWS's, such as healthy, unhealthy or initial
	Description string // AWS's reason of the state; empty for a healthy target
}

// Node is a Kubernetes node.
type Node struct {
	Name     string
	Instance string // instance id, from the provider id
	Ready    bool
	Reason   string // why it is not ready
	// Uninitialized is set while the cloud controller manager has not removed its taint.
	Uninitialized bool
	// LeaseRenewed is when its kubelet last renewed its lease; zero if there is no lease.
	LeaseRenewed time.Time
	// Pressure are its conditions such as DiskPressure, each with its message.
	Pressure []string
}

// Member is an etcd member as an agent that publishes no [report.Report] describes it: one from before
// machine reports. The next apply replaces it.
type Member struct {
	Slot       string
	Healthy    bool      // as its own machine sees it
	Learner    bool      // does not vote yet
	Reason     string    // why it is not healthy
	ReportedAt time.Time // of the last report
}

// Pod is a system pod.
type Pod struct {
	Namespace string // of the pod
	Name      string
	Node      string // name of its node; empty while it is not scheduled
	Running   bool   // and ready
	Reason    string // why it is not running
}

// Unread is something that could not be read. The checks that need it are missing.
type Unread struct {
	What  string // such as "the console of i-1"
	Error string
}

// Ages after which something counts as silent.
const (
	// LeaseTTL is the maximal age of a node's lease. A kubelet renews it every 10 s; Kubernetes itself reports
	// the node as not ready after 40 s.
	LeaseTTL = 15 * time.Second
	// MemberTTL is the maximal age of the report of a [Member], which is written every 10 s.
	MemberTTL = 40 * time.Second
	// missedReports is how many reports or heartbeats an agent may miss.
	missedReports = 3
	// refreshSlack is how late the rare reports of workers may be.
	refreshSlack = 30 * time.Second
)

// staleAfter returns the maximal age of r: three reports of the control plane, and two of a worker, which
// reports rarely while nothing changes.
func (r MachineReport) staleAfter() time.Duration {
	next := time.Duration(r.NextSeconds) * time.Second
	if next > time.Minute {
		return 2*next + refreshSlack
	}

	return missedReports * next
}

// IsSilent reports whether a machine has reported, and its newest report is too old to say how it is now.
func (f Facts) IsSilent(instance string) bool {
	_, reported := f.Reports[instance]
	_, fresh := f.freshReport(instance)

	return reported && !fresh
}

// freshReport returns the newest report of a machine, and whether it says how the machine is now. A report on
// the console is as new as it can be: the agent writes a line only when something changes.
func (f Facts) freshReport(instance string) (MachineReport, bool) {
	r, ok := f.Reports[instance]
	if !ok {
		return MachineReport{}, false
	}

	if r.FromConsole {
		return r, true
	}

	if missed, known := f.missedHeartbeats(r); known {
		return r, missed <= missedReports*report.Interval || f.Now.Sub(r.PublishedAt) <= missedReports*report.Interval
	}

	return r, f.Now.Sub(r.PublishedAt) <= r.staleAfter()
}

// missedHeartbeats returns for how long the control plane has heard no heartbeat of the worker that published r. It
// is not known for a worker that sends none, and before a member that reports has heard one. A member that has just
// started may have forgotten one. Members compare with their own clocks, so that a late report of theirs does not count.
func (f Facts) missedHeartbeats(r MachineReport) (missed time.Duration, known bool) {
	if !r.Heartbeats {
		return 0, false
	}

	listening := time.Duration(math.MaxInt64)
	missed = listening
	for _, member := range f.Reports {
		if member.Etcd == nil || member.FromConsole || f.Now.Sub(member.PublishedAt) > member.staleAfter() {
			continue
		}

		listening = min(listening, time.Duration(member.ListeningSeconds)*time.Second)
		if seconds, heard := member.Heard[r.Node]; heard {
			missed = min(missed, time.Duration(seconds)*time.Second)
			known = true
		}
	}

	return min(missed, listening), known
}

// isSlotOf reports whether i is running and belongs to g, a control-plane slot.
func (g Group) isSlotOf(i Instance) bool { return i.Slot == g.Slot && i.State == "running" }

// label returns the name of a group, with the slot.
func (g Group) label() string {
	if g.Slot == "" {
		return g.Name
	}

	return g.Name + "-" + g.Slot
}

// label returns the name of an instance's group, with the slot.
func (i Instance) label() string { return Group{Name: i.Group, Slot: i.Slot}.label() }

// machineOfSlot returns the running machine of a slot, or else its newest other one that still exists.
func (f Facts) machineOfSlot(g Group) (Instance, bool) {
	var other Instance
	for _, i := range f.Instances {
		switch {
		case i.Slot != g.Slot || i.Slot == "":
		case g.isSlotOf(i):
			return i, true
		case i.State != "terminated":
			other = i
		}
	}

	return other, false
}

// slots returns the groups that are slots of the control plane.
func (f Facts) slots() []Group {
	var out []Group
	for _, g := range f.Groups {
		if g.Slot != "" {
			out = append(out, g)
		}
	}

	return out
}

// isInWarmPool reports whether a machine is in a warm pool. Such a machine does not count for its group and
// is not a node yet.
func isInWarmPool(i Instance) bool {
	n := len(i.Reports)
	return n > 0 && i.Reports[n-1].Stage == "warm" && i.Reports[n-1].State == "running"
}
