// SPDX-License-Identifier: Apache-2.0

// Package health judges a cluster from what was seen of it: machines, their boot reports, etcd members, the API, nodes
// and system pods. It names the cause of whatever is missing. It reads nothing itself and changes nothing.
package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Facts is what was seen of a cluster at one time.
type Facts struct {
	Now       time.Time
	Groups    []Group
	Instances []Instance
	APIError  string // why the API did not answer; empty if it did
	Nodes     []Node
	Members   []Member
	Pods      []Pod
}

// Group is a set of machines that is wanted. A control-plane slot is a group of its own, of size one.
type Group struct {
	Name           string // of the instance group
	Slot           string // of the control plane; empty for workers
	Size           int    // machines wanted at least
	ScalingFailure string // the newest failed scaling activity; empty if there is none
}

// Instance is a machine in EC2.
type Instance struct {
	ID, Group, Slot, State, NodeName string
	Bastion                          bool          // it runs no Kubernetes
	Reports                          []StageReport // of its boot, oldest first; empty if they were not read
}

// StageReport is one line that the agent or the boot script wrote to the serial console.
type StageReport struct {
	Time  time.Time `json:"time"`
	Stage string    `json:"stage"`
	State string    `json:"state"` // running, done or failed
	Error string    `json:"error,omitempty"`
	Hint  string    `json:"hint,omitempty"`
}

// Node is a Kubernetes node.
type Node struct {
	Name, Instance string // instance id, from the provider id
	Ready          bool
	Reason         string // why it is not ready
}

// Member is an etcd member as its own machine reports it.
type Member struct {
	Slot       string
	Healthy    bool
	Learner    bool
	Reason     string
	ReportedAt time.Time // when it last reported
}

// Pod is a system pod.
type Pod struct {
	Namespace, Name string
	Node            string // where it is; empty while it is not scheduled
	Running         bool
	Reason          string // why it is not
}

// MemberTTL is how old a member's report may be: agents renew every 10 s, so three are missed.
const MemberTTL = 40 * time.Second

// Check is one thing that was judged.
type Check struct {
	Kind  string `json:"kind"` // machine, etcd, api, node or pod
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Cause string `json:"cause,omitempty"` // why it is not OK
	Hint  string `json:"hint,omitempty"`
}

// Report is the judgement of a cluster.
type Report struct {
	Valid  bool    `json:"valid"`
	Checks []Check `json:"checks"`
}

// Evaluate judges f. Checks come in a fixed order: machines, etcd, API, nodes, pods, each by name.
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

// isInWarmPool says that a machine is in a warm pool: it is neither one of its group nor to be a node yet.
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
			c.Cause = fmt.Sprintf("%d of %d machines run", len(running), g.Size)
			if g.ScalingFailure != "" {
				c.Cause += "; the auto scaling group says: " + g.ScalingFailure
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

func groupName(g Group) string {
	if g.Slot == "" {
		return g.Name
	}

	return g.Name + "-" + g.Slot
}

// lastReport returns an instance's newest report and whether it says that the boot failed.
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

// checkMembers checks that every slot's etcd member is healthy, votes and has said so lately. Without the API nothing is
// known of them.
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
		case !slices.ContainsFunc(f.Instances, func(m Instance) bool { return m.Slot == g.Slot && m.State == "running" }):
			c.Cause = "its machine does not run"
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

// checkNodes checks that each running machine has a Ready node and each node a machine.
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
			c.Cause = "machine " + i.ID + " has not joined and has reported nothing yet"
		}

		out = append(out, c)
	}

	for _, n := range byInstance {
		out = append(
			out,
			Check{Kind: "node", Name: n.Name, Cause: "its machine " + n.Instance + " does not run"},
		)
	}

	slices.SortFunc(out, func(a, b Check) int { return strings.Compare(a.Name, b.Name) })

	return out
}

// checkPods checks that each system pod runs, on a machine that does, and that none of the control plane's is missing. Pods of
// nodes that are gone count for nothing: Kubernetes forgets them by and by.
func checkPods(f Facts) []Check {
	out := make([]Check, 0, len(f.Pods))
	nodes := map[string]bool{}
	there := map[string]bool{}

	for _, n := range f.Nodes {
		nodes[n.Name] = slices.ContainsFunc(
			f.Instances,
			func(i Instance) bool { return i.ID == n.Instance && i.State == "running" },
		)
	}

	for _, p := range f.Pods {
		runs, known := nodes[p.Node]
		placed := p.Node != ""
		if placed && !known {
			continue
		}

		there[p.Name] = true
		c := Check{
			Kind:  "pod",
			Name:  p.Namespace + "/" + p.Name,
			OK:    p.Running,
			Cause: p.Reason,
		}
		if placed && !runs {
			c.OK = false
			c.Cause = "its machine does not run"
		}

		out = append(out, c)
	}

	for _, i := range f.Instances {
		if nodes[i.NodeName] { // what has not joined is the node's matter
			out = append(out, missingPods(i, there)...)
		}
	}

	slices.SortFunc(out, func(a, b Check) int { return strings.Compare(a.Name, b.Name) })

	return out
}

// missingPods are the pods that a control-plane machine lacks among those that are there.
func missingPods(i Instance, there map[string]bool) (out []Check) {
	if i.Slot == "" {
		return nil
	}

	for _, part := range []string{"kube-apiserver-", "kube-controller-manager-", "kube-scheduler-"} {
		if name := part + i.NodeName; !there[name] {
			out = append(
				out,
				Check{
					Kind:  "pod",
					Name:  "kube-system/" + name,
					Cause: "the kubelet has not shown it to the API yet",
				},
			)
		}
	}

	return out
}
