// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// Severity of a check's result.
type Severity string

// The severities, from the worst to the best.
const (
	// Critical means that the cluster does not work as a whole.
	Critical Severity = "critical"
	// Failed means that a part of the cluster does not work.
	Failed Severity = "failed"
	// Warning means that everything works, and that somebody has to do something before it fails.
	Warning Severity = "warning"
	// OK means that there is nothing to do.
	OK Severity = "ok"
)

// severities in their order.
func severities() []Severity { return []Severity{Critical, Failed, Warning, OK} }

// Kinds of checks, in the order in which they are printed.
const (
	KindEtcd        = "etcd"
	KindAPI         = "api"
	KindGroup       = "group"
	KindMachine     = "machine"
	KindTarget      = "target"
	KindNode        = "node"
	KindPod         = "pod"
	KindCertificate = "certificate"
)

func kinds() []string {
	return []string{KindEtcd, KindAPI, KindGroup, KindMachine, KindTarget, KindNode, KindPod, KindCertificate}
}

// Check is the result of one check.
type Check struct {
	Kind     string   `json:"kind"`               // etcd, api, group, machine, target, node, pod or certificate
	Name     string   `json:"name"`               // of what was checked
	Machine  string   `json:"machine,omitempty"`  // instance id of the machine that it is on, if there is one
	Severity Severity `json:"severity"`           // critical, failed, warning or ok
	OK       bool     `json:"ok"`                 // false for critical and failed
	Cause    string   `json:"cause,omitempty"`    // why it is not OK; of etcd's backups, and of machines and members without the API, also if it is
	Hint     string   `json:"hint,omitempty"`     // what to do; may be empty
	CausedBy string   `json:"causedBy,omitempty"` // kind and name of the check that explains this one
	// Since is when the machine's agent first saw it; omitted if that is not known.
	Since time.Time `json:"since,omitzero"`
	// silent is for how long the kubelet has not been heard of; zero if it has, or if the check is about something else.
	silent time.Duration
}

// Report is the health of a cluster.
type Report struct {
	// FormatVersion is [FormatVersion].
	FormatVersion int `json:"formatVersion"`
	// Valid means that every check is OK; warnings do not count.
	Valid bool `json:"valid"`
	// Time at which the facts were read.
	Time time.Time `json:"time"`
	// Checks with the most severe first. What another check explains follows the others of its severity.
	Checks []Check `json:"checks"`
	// Unread lists what could not be read. The checks that need it are missing.
	Unread []string `json:"unread,omitempty"`
}

// FormatVersion is the version of the form of a Report as JSON. Its schema is [Schema].
const FormatVersion = 1

// Evaluate returns the health of a cluster. Without the API, it checks machines and, from their consoles,
// etcd.
func Evaluate(f Facts) Report {
	f.Instances = slices.DeleteFunc(slices.Clone(f.Instances), isInWarmPool)
	machines := checkMachines(f)
	checks := slices.Concat(machines, checkEtcd(f), checkAPI(f), checkTargets(f), checkCertificates(f))
	if f.APIError == "" {
		checks = append(checks, checkNodes(f)...)
		checks = append(checks, checkPods(f)...)
	}

	for i := range checks {
		c := &checks[i]
		c.Severity = cmp.Or(c.Severity, OK)
		c.Cause = plainerror.Text(plainerror.Printable(c.Cause)) // much of it is written by machines and pods
		c.Name = plainerror.Printable(c.Name)
		c.OK = c.Severity == OK || c.Severity == Warning
	}

	explain(f, checks)
	for i := range checks {
		checks[i].Hint = plainerror.Printable(cmp.Or(checks[i].Hint, nextStep(checks[i]))) // machines report hints, too
	}

	slices.SortStableFunc(checks, compareChecks)
	r := Report{FormatVersion: FormatVersion, Time: f.Now, Checks: checks}
	r.Valid = !slices.ContainsFunc(checks, func(c Check) bool { return !c.OK })
	for _, u := range f.Unread {
		r.Unread = append(r.Unread, plainerror.Text(plainerror.Printable(u.What+": "+u.Error)))
	}

	return r
}

// nextStep returns what to do about a problem for which its check has no better advice. It is empty for what another check
// explains, and for what is not a problem.
func nextStep(c Check) string {
	component := map[string]string{
		KindNode:    "kubelet",
		KindAPI:     "kube-apiserver",
		KindEtcd:    "etcd",
		KindMachine: "slipway-node",
	}[c.Kind]

	switch {
	case c.OK || c.CausedBy != "":
		return ""
	case c.Kind == KindPod:
		namespace, name, _ := strings.Cut(c.Name, "/")
		return "see its events: kubectl -n " + namespace + " describe pod " + name
	case component != "" && c.Machine != "":
		return "see the log of " + component + ": slipway logs " + c.Machine + " " + component
	default:
		return ""
	}
}

// compareChecks orders checks by severity, causes before what they explain, and by kind and name.
func compareChecks(a, b Check) int {
	return cmp.Or(
		cmp.Compare(slices.Index(severities(), a.Severity), slices.Index(severities(), b.Severity)),
		cmp.Compare(min(1, len(a.CausedBy)), min(1, len(b.CausedBy))),
		cmp.Compare(slices.Index(kinds(), a.Kind), slices.Index(kinds(), b.Kind)),
		strings.Compare(a.Name, b.Name),
	)
}

// explain sets CausedBy of the checks that fail because another one does: what is on a machine that does not
// work, and what needs etcd while it has no quorum.
func explain(f Facts, checks []Check) {
	machines := explainingMachines(f, checks)
	members, quorum := explainingMembers(checks)
	server := firstFailedServer(checks)
	for i := range checks {
		c := &checks[i]
		machine := ofMachine(machines, *c)
		member := ofMachine(members, *c)

		switch {
		case c.OK || c.Kind == KindEtcd && c.Severity == Critical:
		case c.Kind == KindEtcd:
			c.CausedBy = machines[cmp.Or(c.Machine, c.Name)]
		case c.Kind == KindAPI:
			c.CausedBy = cmp.Or(machine, quorum, member)
		case c.Kind == KindTarget:
			c.CausedBy = cmp.Or(machine, quorum, member, failedServerOf(checks, c.Machine))
		case c.Kind == KindMachine:
			c.CausedBy = connectedServer(server, *c)
		case c.Kind == KindNode: // a kubelet of the control plane reports through its machine's own API server
			c.CausedBy = cmp.Or(machine, member, connectedServer(server, *c))
		case c.Kind == KindPod || c.Kind == KindCertificate:
			c.CausedBy = machine
		}
	}
}

// explainingMembers returns the failed checks of etcd members, by instance id, and that of the quorum.
func explainingMembers(checks []Check) (members map[string]string, quorum string) {
	members = map[string]string{}
	for _, c := range checks {
		switch {
		case c.OK || c.Kind != KindEtcd:
		case c.Name == quorumName:
			quorum = KindEtcd + " " + c.Name
		case c.Machine != "":
			members[c.Machine] = KindEtcd + " " + c.Name
		}
	}

	return members, quorum
}

// ofMachine returns the cause of the machine that c is on, if there is one.
func ofMachine(causes map[string]string, c Check) string {
	if c.Machine == "" {
		return ""
	}

	return causes[c.Machine]
}

// explainingMachines returns the failed checks of machines, by instance id: of the machine itself, or of its
// group if the machine does not run. A slot without a machine is found by the name of its member.
func explainingMachines(f Facts, checks []Check) map[string]string {
	out := map[string]string{}
	groups := map[string]bool{} // labels of the groups that lack machines
	for _, c := range checks {
		switch {
		case c.OK:
		case c.Kind == KindGroup:
			groups[c.Name] = true
		case c.Kind == KindMachine:
			out[c.Machine] = KindMachine + " " + c.Name
		}
	}

	for _, i := range f.Instances {
		if i.State != "running" && groups[i.label()] {
			out[i.ID] = KindGroup + " " + i.label()
		}
	}

	for _, g := range f.slots() {
		if groups[g.label()] {
			out[memberName(g.Slot)] = KindGroup + " " + g.label()
		}
	}

	return out
}

// firstFailedServer returns the check of an API server that failed, if there is one.
func firstFailedServer(checks []Check) Check {
	at := slices.IndexFunc(checks, func(c Check) bool { return c.Kind == KindAPI && c.Machine != "" && !c.OK })
	if at < 0 {
		return Check{}
	}

	return checks[at]
}

// reconnectTime is for how long kubelets and agents may be silent because the API server that they were connected to
// has failed: they notice it after a time-out and connect to another one through the load balancer. It is the time
// after which Kubernetes itself reports a node as not ready.
const reconnectTime = 40 * time.Second

// connectedServer returns the check of the failed API server that explains why another machine has been silent for a
// short time.
func connectedServer(server, c Check) string {
	if server.Name == "" || c.Machine == server.Machine || c.silent == 0 || c.silent > reconnectTime {
		return ""
	}

	return KindAPI + " " + server.Name
}

// failedServerOf returns the check of the API server of a machine if it failed.
func failedServerOf(checks []Check, machine string) string {
	for _, c := range checks {
		if c.Kind == KindAPI && c.Machine == machine && !c.OK {
			return KindAPI + " " + c.Name
		}
	}

	return ""
}

// formatAge formats an age in words: 45s, 3m, 2h, 4d.
func formatAge(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	}
}
