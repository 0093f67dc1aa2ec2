// SPDX-License-Identifier: Apache-2.0

// Package logs reads the logs of a cluster's machines and components without SSH.
//
// [ChooseSource] decides from facts where the logs of a name come from: the containers of pods, the journal of a
// machine, which its kubelet serves through the Kubernetes API, or the serial console, which EC2 keeps also when
// nothing else answers. Package logs does not print; it copies text to a writer.
package logs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Kind is where logs come from.
type Kind string

// The kinds of sources.
const (
	// Pods are the containers of pods, read through the Kubernetes API.
	Pods Kind = "pods"
	// Journal is a machine's systemd journal, read from its kubelet through the Kubernetes API.
	Journal Kind = "journal"
	// Console is the serial console, read from EC2: the kernel, cloud-init and the agent's reports.
	Console Kind = "console"
)

// Component is a program of every cluster that has logs.
type Component struct {
	// Name as an operator types it.
	Name string
	// Namespace and Selector find its pods; empty for a systemd unit.
	Namespace string
	Selector  string
	// Units are its systemd units; empty for pods.
	Units []string
}

// Components returns the components, in the order in which they are listed.
func Components() []Component {
	return []Component{
		{Name: "etcd", Units: []string{"etcd"}},
		{Name: "kube-apiserver", Namespace: "kube-system", Selector: "component=kube-apiserver"},
		{Name: "kube-controller-manager", Namespace: "kube-system", Selector: "component=kube-controller-manager"},
		{Name: "kube-scheduler", Namespace: "kube-system", Selector: "component=kube-scheduler"},
		{Name: "kube-proxy", Namespace: "kube-system", Selector: "k8s-app=kube-proxy"},
		{Name: "coredns", Namespace: "kube-system", Selector: "k8s-app=kube-dns"},
		{Name: "flannel", Namespace: "kube-system", Selector: "k8s-app=flannel"},
		{Name: "aws-node", Namespace: "kube-system", Selector: "k8s-app=aws-node"},
		{Name: "kubelet", Units: []string{"kubelet"}},
		{Name: "containerd", Units: []string{"containerd"}},
		{Name: "slipway-node", Units: []string{"slipway-node"}},
	}
}

// ComponentNames returns the names of all components.
func ComponentNames() []string {
	var out []string
	for _, c := range Components() {
		out = append(out, c.Name)
	}

	return out
}

// Request is what an operator asks for.
type Request struct {
	// Target is a machine or a component.
	Target string
	// Machine restricts the logs of a component to one machine; empty: all.
	Machine string
	// Console asks for the serial console of a machine.
	Console bool
	// Previous asks for the logs of the containers that ran before the current ones.
	Previous bool
	// Follow asks for new lines as they are written.
	Follow bool
}

// Facts are what the decision depends on.
type Facts struct {
	// Machines of the cluster, joined with their nodes.
	Machines []inventory.Machine
	// APIError is why the Kubernetes API does not answer; nil if it does.
	APIError error
}

// Source is where to read logs.
type Source struct {
	// Kind of the source.
	Kind Kind
	// Component whose pods or units are read; zero for the whole journal of a machine.
	Component Component
	// Machines whose journal, console or pods are read; empty for the pods of all machines.
	Machines []inventory.Machine
	// Note is for the operator: why the source is another one than asked for. It may be empty.
	Note string
}

// ChooseSource returns where to read the logs that a request asks for. It fails if the request cannot be served, with
// a hint that names what can.
func ChooseSource(req Request, facts Facts) (Source, error) {
	i := slices.IndexFunc(Components(), func(c Component) bool { return c.Name == req.Target })
	if i < 0 {
		return chooseMachineSource(req, facts)
	}

	return chooseComponentSource(Components()[i], req, facts)
}

// chooseMachineSource chooses between a machine's journal and its console.
func chooseMachineSource(req Request, facts Facts) (Source, error) {
	m, err := inventory.FindMachine(facts.Machines, req.Target)
	if err != nil {
		return Source{}, addComponentHint(err, req.Target)
	}

	if req.Previous {
		return Source{}, diag.WithHint(
			fmt.Errorf("machine %s has no previous logs", m.ID),
			"leave out --previous, or name a component: "+strings.Join(ComponentNames(), ", "),
		)
	}

	out := Source{Kind: Journal, Machines: []inventory.Machine{m}}
	switch {
	case req.Console:
		out.Kind = Console
	case facts.APIError != nil:
		out.Kind = Console
		out.Note = fmt.Sprintf("showing the console, because the Kubernetes API does not answer: %s", facts.APIError)
	case m.NodeState != inventory.NodeReady:
		out.Kind = Console
		out.Note = fmt.Sprintf("showing the console of %s, because its node is %s", m.ID, describeNode(m))
	}

	return out, nil
}

func describeNode(m inventory.Machine) string {
	if m.IsGone() {
		return "gone: the machine is " + m.State
	}

	if m.NodeState == "" {
		return "not a Kubernetes node"
	}

	return m.NodeState
}

// chooseComponentSource chooses between pods and journals. Without the API there is nothing but consoles, which do not
// have what components write.
func chooseComponentSource(c Component, req Request, facts Facts) (Source, error) {
	if facts.APIError != nil {
		return Source{}, diag.WithHint(
			fmt.Errorf("read the logs of %s: %w", c.Name, facts.APIError),
			"read the console of a machine with: slipway logs MACHINE --console",
		)
	}

	if req.Console {
		return Source{}, diag.WithHint(
			errors.New("a component has no console"),
			"leave out --console, or name a machine",
		)
	}

	out := Source{Kind: Pods, Component: c}
	if len(c.Units) > 0 {
		out.Kind = Journal
	}

	if req.Previous && out.Kind == Journal {
		return Source{}, diag.WithHint(
			fmt.Errorf("%s is a systemd unit, which has no previous container", c.Name),
			"leave out --previous: its journal has what it wrote before its last start",
		)
	}

	if req.Machine == "" {
		if out.Kind == Journal {
			out.Machines = machinesOf(c, facts.Machines)
		}

		return out, nil
	}

	m, err := inventory.FindMachine(facts.Machines, req.Machine)
	out.Machines = []inventory.Machine{m}

	return out, err
}

// machinesOf returns the machines that run a unit and whose kubelet can be asked for its journal.
func machinesOf(c Component, machines []inventory.Machine) []inventory.Machine {
	var out []inventory.Machine
	for _, m := range machines {
		if m.NodeState == inventory.NodeReady && (c.Name != etcdUnit || m.Role == inventory.RoleControlPlane) {
			out = append(out, m)
		}
	}

	return out
}

// etcdUnit is the unit and the component that only control-plane machines have.
const etcdUnit = "etcd"

// journalUnits returns the units of Slipway on a machine.
func journalUnits(m inventory.Machine) []string {
	var out []string
	for _, c := range Components() {
		for _, unit := range c.Units {
			if unit != etcdUnit || m.Role == inventory.RoleControlPlane {
				out = append(out, unit)
			}
		}
	}

	return out
}

func addComponentHint(err error, target string) error {
	hint := "components: " + strings.Join(ComponentNames(), ", ")
	if near := diag.Nearest(target, ComponentNames()); near != "" {
		hint = "did you mean the component " + near + "?"
	}

	return diag.WithHint(err, hint)
}
