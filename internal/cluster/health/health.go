// SPDX-License-Identifier: Apache-2.0

// Package health checks the health of a cluster from [Facts]: machines, their boot reports, etcd members, the
// API, nodes and system pods. Each failed [Check] has a cause. The package is pure: it reads and changes
// nothing.
package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Facts is the observed state of a cluster at one time.
type Facts struct {
	// Now is when the facts were read.
	Now       time.Time
	Groups    []Group    // that should run
	Instances []Instance // of the cluster, bastions included
	APIError  string     // why the API did not answer; empty if it did
	// Nodes, Members and Pods are read from the API; empty if it did not answer.
	Nodes   []Node
	Members []Member
	Pods    []Pod
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

// Node is a Kubernetes node.
type Node struct {
	Name     string
	Instance string // instance id, from the provider id
	Ready    bool
	Reason   string // why it is not ready
}

// Member is an etcd member as its own machine reports it.
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

// MemberTTL is the maximal age of a member's report. Agents report every 10 s, so three reports may be
// missed.
const MemberTTL = 40 * time.Second

// Check is the result of one check.
type Check struct {
	Kind  string `json:"kind"` // machine, etcd, api, node or pod
	Name  string `json:"name"`
	OK    bool   `json:"ok"`              // false: see Cause
	Cause string `json:"cause,omitempty"` // why it failed
	Hint  string `json:"hint,omitempty"`  // what to do; may be empty
}

// Report is the health of a cluster.
type Report struct {
	Valid  bool    `json:"valid"` // every check is OK
	Checks []Check `json:"checks"`
}

// Evaluate returns the health of a cluster. Checks are in a fixed order: machines, etcd, API, nodes, pods,
// each by name. Without the API, only machines are checked.
func Evaluate(f Facts) Report {
	f.Instances = slices.DeleteFunc(slices.Clone(f.Instances), isInWarmPool)
	var checks []Check
	checks = append(checks, checkMachines(f)...)
	checks = append(checks, checkMembers(f)...)
	checks = append(checks, Check{
		Kind:  "api",
		Name:  "kube-apiserver",
		OK:    f.APIError == "",
		Cause: f.APIError,
	})
	if f.APIError == "" {
		checks = append(checks, checkNodes(f)...)
		checks = append(checks, checkPods(f)...)
	}

	return Report{Valid: !slices.ContainsFunc(checks, func(c Check) bool { return !c.OK }), Checks: checks}
}

// isInWarmPool reports whether a machine is in a warm pool. Such a machine does not count for its group and
// is not a node yet.
func isInWarmPool(i Instance) bool {
	n := len(i.Reports)
	return n > 0 && i.Reports[n-1].Stage == "warm" && i.Reports[n-1].State == "running"
}

// checkMachines checks that each group has its running machines and that none of them failed to boot.
func checkMachines(f Facts) []Check {
	var out []Check
	for _, g := range f.Groups {
		var running []Instance
		for _, i := range f.Instances {
			if i.Group == g.Name && i.Slot == g.Slot && i.State == "running" {
				running = append(running, i)
			}
		}

		c := Check{Kind: "machine", Name: groupName(g), OK: len(running) >= g.Size}
		if !c.OK {
			c.Cause = fmt.Sprintf("%d of %d machines are running", len(running), g.Size)
			if g.ScalingFailure != "" {
				c.Cause += "; the last scaling activity failed: " + g.ScalingFailure
			}
		}

		out = append(out, c)

		for _, i := range running {
			if last, failed := lastReport(i); failed {
				out = append(out, Check{
					Kind:  "machine",
					Name:  i.ID,
					Cause: reportText(last),
					Hint:  last.Hint,
				})
			}
		}
	}

	return out
}

// isSlotOf reports whether i is running and belongs to g, a control-plane slot.
func (g Group) isSlotOf(i Instance) bool { return i.Slot == g.Slot && i.State == "running" }

func groupName(g Group) string {
	if g.Slot == "" {
		return g.Name
	}

	return g.Name + "-" + g.Slot
}

// lastReport returns an instance's newest report, and whether it is a failure.
func lastReport(i Instance) (StageReport, bool) {
	if len(i.Reports) == 0 {
		return StageReport{}, false
	}

	last := i.Reports[len(i.Reports)-1]
	return last, last.State == "failed"
}

func reportText(r StageReport) string {
	text := fmt.Sprintf("stage %s %s", r.Stage, r.State)
	if r.Error != "" {
		text += ": " + r.Error
	}

	return text
}

// checkMembers checks that every slot's etcd member is healthy, votes and has reported recently. Without the
// API it returns no checks.
func checkMembers(f Facts) []Check {
	var out []Check
	if f.APIError != "" {
		return nil
	}

	for _, g := range f.Groups {
		if g.Slot == "" {
			continue
		}

		c := Check{Kind: "etcd", Name: "etcd-" + g.Slot}
		i := slices.IndexFunc(f.Members, func(m Member) bool { return m.Slot == g.Slot })

		switch {
		case !slices.ContainsFunc(f.Instances, g.isSlotOf):
			c.Cause = "its machine is not running"
		case i < 0:
			c.Cause = "has not reported yet"
		case f.Now.Sub(f.Members[i].ReportedAt) > MemberTTL:
			c.Cause = fmt.Sprintf(
				"last reported %s ago",
				f.Now.Sub(f.Members[i].ReportedAt).Round(time.Second),
			)

		case f.Members[i].Learner:
			c.Cause = "is a learner still catching up"
		case !f.Members[i].Healthy:
			c.Cause = f.Members[i].Reason
		default:
			c.OK = true
		}

		out = append(out, c)
	}

	return out
}

// checkNodes checks that each running machine has a Ready node, and that each node has a running machine.
func checkNodes(f Facts) []Check {
	var out []Check
	byInstance := map[string]Node{}
	for _, n := range f.Nodes {
		byInstance[n.Instance] = n
	}

	for _, i := range f.Instances {
		if i.State != "running" || i.Bastion {
			continue
		}

		n, ok := byInstance[i.ID]
		delete(byInstance, i.ID)
		c := Check{Kind: "node", Name: i.NodeName, OK: ok && n.Ready}

		switch last, _ := lastReport(i); {
		case ok && !n.Ready:
			c.Cause = "not ready: " + n.Reason
		case !ok && last.Stage != "":
			c.Cause = "machine " + i.ID + " has not joined; " + reportText(last)
			c.Hint = last.Hint
		case !ok:
			c.Cause = "machine " + i.ID + " has not joined and has sent no reports yet"
		}

		out = append(out, c)
	}

	for _, n := range byInstance {
		out = append(
			out,
			Check{Kind: "node", Name: n.Name, Cause: "its machine " + n.Instance + " is not running"},
		)
	}

	slices.SortFunc(out, func(a, b Check) int { return strings.Compare(a.Name, b.Name) })

	return out
}

// checkPods checks that each system pod runs on a running machine, and that no control-plane pod is missing.
// It ignores pods of deleted nodes, which Kubernetes removes after a while.
func checkPods(f Facts) []Check {
	out := make([]Check, 0, len(f.Pods))
	nodes := map[string]bool{}
	found := map[string]bool{}

	for _, n := range f.Nodes {
		nodes[n.Name] = slices.ContainsFunc(
			f.Instances,
			func(i Instance) bool { return i.ID == n.Instance && i.State == "running" },
		)
	}

	for _, p := range f.Pods {
		running, known := nodes[p.Node]
		scheduled := p.Node != ""
		if scheduled && !known {
			continue
		}

		found[p.Name] = true
		c := Check{
			Kind:  "pod",
			Name:  p.Namespace + "/" + p.Name,
			OK:    p.Running,
			Cause: p.Reason,
		}
		if scheduled && !running {
			c.OK = false
			c.Cause = "its machine is not running"
		}

		out = append(out, c)
	}

	for _, i := range f.Instances {
		if nodes[i.NodeName] { // checkNodes reports machines that have not joined
			out = append(out, missingPods(i, found)...)
		}
	}

	slices.SortFunc(out, func(a, b Check) int { return strings.Compare(a.Name, b.Name) })

	return out
}

// missingPods returns a failed check for each control-plane pod of a machine that is not in found.
func missingPods(i Instance, found map[string]bool) (out []Check) {
	if i.Slot == "" {
		return nil
	}

	for _, prefix := range []string{"kube-apiserver-", "kube-controller-manager-", "kube-scheduler-"} {
		if name := prefix + i.NodeName; !found[name] {
			out = append(
				out,
				Check{
					Kind:  "pod",
					Name:  "kube-system/" + name,
					Cause: "the kubelet has not registered it with the API yet",
				},
			)
		}
	}

	return out
}
