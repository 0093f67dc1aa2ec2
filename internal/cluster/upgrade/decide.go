// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"slices"
	"strings"
)

// maxKubeletSkew is how many minor versions a kubelet may be older than the API server, by the version skew policy
// of Kubernetes.
const maxKubeletSkew = 3

// Group is what was observed of one instance group that runs Kubernetes.
type Group struct {
	// Name of the group.
	Name string
	// ControlPlane is set for the group of the control plane.
	ControlPlane bool
	// Desired is the version in the manifests.
	Desired Version
	// Applied is the version of the manifests that were applied last: the launch templates have it.
	Applied Version
	// RolledBack is set if a rollback has returned the group from the newest launch template to an earlier one.
	RolledBack bool
}

// Machine is what was observed of one node.
type Machine struct {
	// Node is the name of the node.
	Node string
	// Group is the name of its instance group.
	Group string
	// ControlPlane is set for a machine of the control plane.
	ControlPlane bool
	// Version of its kubelet. The API server of a control-plane machine has the same version.
	Version Version
}

// Observation is the complete input of a decision.
type Observation struct {
	// Groups that run Kubernetes.
	Groups []Group
	// Machines of the groups.
	Machines []Machine
	// Stack is set if the cluster is a CloudFormation stack, whose template rolls all groups in order.
	Stack bool
	// NewCatalog is set if the asset catalogue of the upgrade was not written yet.
	NewCatalog bool
	// CatalogPending is set if the asset catalogue in the state store is not the one that was applied last.
	CatalogPending bool
}

// StepType is what a step does.
type StepType string

// The steps of an upgrade.
const (
	// StepDone means that every group and every machine has the target.
	StepDone StepType = "done"
	// StepWrite writes the versions of groups into the manifests.
	StepWrite StepType = "write the manifests"
	// StepApply applies the manifests, which changes the launch templates.
	StepApply StepType = "apply"
	// StepReplace replaces the machines of groups one after the other.
	StepReplace StepType = "replace machines"
)

// Step is the next thing to do.
type Step struct {
	// Type of the step.
	Type StepType
	// Versions to write, by group. Only for StepWrite.
	Versions map[string]Version
	// Groups whose machines are replaced, sorted. Only for StepReplace.
	Groups []string
	// Failure is why the upgrade must stop; empty otherwise.
	Failure string
}

// Decide returns the next step of an upgrade to target. It is a pure function: it derives the step from what was
// observed, so that an upgrade continues after a kill.
//
// The control plane is first. Until all of its machines have the target, the workers' groups keep their version, so
// that no new worker, such as one of an autoscaler, has a newer kubelet than the oldest API server. Add-ons follow the
// oldest machine of the control plane by themselves.
func Decide(o Observation, target Version) Step {
	if failure := findSkew(o, target); failure != "" {
		return Step{Failure: failure}
	}

	if s := decideGroups(o, target, true); s.Type != StepDone {
		return s
	}

	return decideGroups(o, target, false)
}

// decideGroups returns the next step for the control plane, or for the workers.
func decideGroups(o Observation, target Version, controlPlane bool) Step {
	if versions := versionsToWrite(o, target, controlPlane); len(versions) > 0 || o.NewCatalog {
		return Step{Type: StepWrite, Versions: versions}
	}

	if o.CatalogPending {
		return Step{Type: StepApply}
	}

	isChanged := func(g Group) bool { return g.Desired != g.Applied }
	if slices.ContainsFunc(o.Groups, isChanged) {
		return Step{Type: StepApply}
	}

	groups := groupsToReplace(o, target, controlPlane)
	if len(groups) > 0 {
		return Step{Type: StepReplace, Groups: groups}
	}

	return Step{Type: StepDone}
}

// groupsToReplace returns the groups of the control plane, or of the workers, with machines that must be replaced, sorted.
func groupsToReplace(o Observation, target Version, controlPlane bool) []string {
	var groups []string
	for _, m := range o.Machines {
		if m.ControlPlane == controlPlane && m.Version != target {
			groups = append(groups, m.Group)
		}
	}

	for _, g := range o.Groups {
		if g.ControlPlane == controlPlane && g.RolledBack {
			groups = append(groups, g.Name) // a machine that is replaced would be older than those that follow
		}
	}

	slices.Sort(groups)

	return slices.Compact(groups)
}

// versionsToWrite returns the versions to write into the manifests. Together with the version of the control plane it
// has the present ones of the workers, which would follow the control plane otherwise. A stack needs no such order.
func versionsToWrite(o Observation, target Version, controlPlane bool) map[string]Version {
	out := map[string]Version{}
	for _, g := range o.Groups {
		if (g.ControlPlane == controlPlane || o.Stack) && g.Desired != target {
			out[g.Name] = target
		}
	}

	if len(out) == 0 || !controlPlane || o.Stack {
		return out
	}

	for _, g := range o.Groups {
		if !g.ControlPlane {
			out[g.Name] = g.Desired
		}
	}

	return out
}

// findSkew returns why the version skew policy of Kubernetes does not allow the upgrade; empty if it does.
func findSkew(o Observation, target Version) string {
	for _, g := range o.Groups {
		if g.Desired.Compare(target) > 0 {
			return fmt.Sprintf("group %s has version %s in the manifests, and %s is older: a downgrade is not supported",
				g.Name, g.Desired, target)
		}
	}

	oldest := oldestControlPlane(o)
	if target.Major != oldest.Major || target.minorsAhead(oldest) > 1 {
		return fmt.Sprintf("the control plane runs %s: upgrade one minor version at a time, to 1.%d first",
			oldest, oldest.Minor+1)
	}

	for _, m := range o.Machines {
		switch {
		case m.Version.Compare(target) > 0:
			return fmt.Sprintf("node %s runs %s, which is newer than %s", m.Node, m.Version, target)
		case !m.ControlPlane && m.Version.minorsAhead(oldest) > 0:
			return fmt.Sprintf("the kubelet of node %s is version %s, newer than the API server's %s",
				m.Node, m.Version, oldest)
		case target.minorsAhead(m.Version) > maxKubeletSkew:
			return fmt.Sprintf("the kubelet of node %s is version %s: an API server of version %s supports kubelets "+
				"of at most %d minor versions before", m.Node, m.Version, target, maxKubeletSkew)
		}
	}

	return ""
}

// oldestControlPlane returns the oldest version of a control-plane machine; without machines, the applied one.
func oldestControlPlane(o Observation) Version {
	var oldest Version
	note := func(v Version) {
		if oldest == (Version{}) || v.Compare(oldest) < 0 {
			oldest = v
		}
	}

	for _, m := range o.Machines {
		if m.ControlPlane {
			note(m.Version)
		}
	}

	if oldest != (Version{}) {
		return oldest
	}

	for _, g := range o.Groups {
		if g.ControlPlane {
			note(g.Applied)
		}
	}

	return oldest
}

// Plan returns all steps of the upgrade from the observed state, as if each succeeds at once.
func Plan(o Observation, target Version) []Step {
	o.Groups = slices.Clone(o.Groups)
	o.Machines = slices.Clone(o.Machines)
	var out []Step
	for {
		s := Decide(o, target)
		if s.Failure != "" {
			return append(out, s)
		}

		if s.Type == StepDone {
			return out
		}

		out = append(out, s)
		o = o.after(s)
	}
}

// after returns the state after a step that succeeded. o's slices are changed.
func (o Observation) after(s Step) Observation {
	o.CatalogPending = (o.CatalogPending || o.NewCatalog) && s.Type != StepApply
	o.NewCatalog = false
	for i := range o.Groups {
		o.Groups[i].carryOut(s)
	}

	for i := range o.Machines {
		m := &o.Machines[i]
		for _, g := range o.Groups {
			if g.Name == m.Group && (slices.Contains(s.Groups, g.Name) || o.Stack && s.Type == StepApply) {
				m.Version = g.Applied
			}
		}
	}

	return o
}

// carryOut changes the group as a step does that succeeded.
func (g *Group) carryOut(s Step) {
	if v, written := s.Versions[g.Name]; written {
		g.Desired = v
	}

	if s.Type == StepApply {
		g.Applied = g.Desired
	}

	if slices.Contains(s.Groups, g.Name) {
		g.RolledBack = false
	}
}

// Describe returns what the step does in one line.
func (s Step) Describe() string {
	switch s.Type {
	case StepWrite:
		var parts []string
		for name, v := range s.Versions {
			parts = append(parts, name+" "+v.String())
		}

		slices.Sort(parts)
		if len(parts) == 0 {
			return "pin the asset catalogue"
		}

		return "set the versions of groups: " + strings.Join(parts, ", ")
	case StepApply:
		return "apply the manifests: the launch templates get these versions"
	case StepReplace:
		return "replace the machines of " + strings.Join(s.Groups, ", ") + " one after the other"
	case StepDone:
	}

	return "nothing to do"
}
