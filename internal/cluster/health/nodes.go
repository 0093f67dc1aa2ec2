// SPDX-License-Identifier: Apache-2.0

package health

import (
	"slices"
	"strings"
)

// checkNodes checks that each running machine has a Ready node whose kubelet reports, and that each node has
// a running machine.
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
		if ok {
			out = append(out, checkNode(f, i, n)...)
			continue
		}

		out = append(out, missingNode(i))
	}

	for _, n := range byInstance {
		out = append(out, Check{
			Kind:     KindNode,
			Name:     n.Name,
			Machine:  n.Instance,
			Severity: Failed,
			Cause:    "its machine " + n.Instance + " is not running",
			Hint:     "wait: the control plane deletes the node when EC2 has terminated the machine",
		})
	}

	slices.SortFunc(out, func(a, b Check) int { return strings.Compare(a.Name, b.Name) })

	return out
}

// checkNode checks one node of a running machine.
func checkNode(f Facts, i Instance, n Node) []Check {
	c := Check{Kind: KindNode, Name: n.Name, Machine: i.ID}
	silent := silenceOf(f, i)

	switch {
	case silent.lease > 0:
		c.Severity = Failed
		c.silent = silent.lease
		c.Cause = "its kubelet has not reported for " + formatAge(silent.lease) +
			": it has stopped, or the machine hangs or is cut off from the API"
		c.Hint = "on machine " + i.ID + ": systemctl status kubelet; if it cannot be reached, check its network or " +
			"terminate it: its group replaces it"

	case !n.Ready:
		c.Severity = Failed
		c.Cause = "not ready: " + n.Reason

	case n.Uninitialized:
		c.Severity = Failed
		c.Cause = "not ready: the cloud controller manager has not initialized it, so no pods are scheduled there"
		c.Hint = "apply the channel examples/addons/cloud-provider.yaml; if it is applied: " +
			"kubectl -n kube-system logs daemonset/aws-cloud-controller-manager"
	}

	out := []Check{c}
	for _, pressure := range n.Pressure {
		out = append(out, Check{
			Kind:     KindNode,
			Name:     n.Name,
			Machine:  i.ID,
			Severity: Warning,
			Cause:    pressure,
			Hint:     "the kubelet evicts pods and starts no new ones until it has enough again",
		})
	}

	return out
}

// missingNode returns the failed check of a running machine that has no node.
func missingNode(i Instance) Check {
	c := Check{
		Kind:     KindNode,
		Name:     i.NodeName,
		Machine:  i.ID,
		Severity: Failed,
		Cause:    "machine " + i.ID + " has not joined and has sent no reports yet",
		Hint: "wait for its boot; if no report comes within minutes: aws ec2 get-console-output --latest --instance-id " +
			i.ID,
	}

	if last, _ := lastReport(i); last.Stage != "" {
		c.Cause = "machine " + i.ID + " has not joined; " + reportText(last)
		c.Hint = last.Hint
	}

	return c
}

// checkPods checks that each system pod runs on a running machine, and that no control-plane pod is missing.
// It ignores pods of deleted nodes, which Kubernetes removes after a while.
func checkPods(f Facts) []Check {
	out := make([]Check, 0, len(f.Pods))
	machines := map[string]string{} // instance id by node
	running := map[string]bool{}    // by node
	found := map[string]bool{}

	for _, n := range f.Nodes {
		machines[n.Name] = n.Instance
		running[n.Name] = slices.ContainsFunc(
			f.Instances,
			func(i Instance) bool { return i.ID == n.Instance && i.State == "running" },
		)
	}

	for _, p := range f.Pods {
		machine, known := machines[p.Node]
		scheduled := p.Node != ""
		if scheduled && !known {
			continue
		}

		found[p.Name] = true
		c := Check{Kind: KindPod, Name: p.Namespace + "/" + p.Name, Machine: machine}

		switch {
		case scheduled && !running[p.Node]:
			c.Severity = Failed
			c.Cause = "its machine is not running"
		case !p.Running:
			c.Severity = Failed
			c.Cause = p.Reason
			c.Hint = "kubectl -n " + p.Namespace + " describe pod " + p.Name
		}

		out = append(out, c)
	}

	for _, i := range f.Instances {
		if running[i.NodeName] { // checkNodes reports machines that have not joined
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
			out = append(out, Check{
				Kind:     KindPod,
				Name:     "kube-system/" + name,
				Machine:  i.ID,
				Severity: Failed,
				Cause:    "the kubelet runs no such pod: it has not registered it yet, or its manifest is missing or not valid",
				Hint: "on machine " + i.ID + ": ls /etc/kubernetes/manifests, journalctl -u kubelet; the agent restores " +
					"a manifest that was changed",
			})
		}
	}

	return out
}
