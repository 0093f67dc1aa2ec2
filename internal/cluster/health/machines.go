// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// checkMachines checks that each group has its running machines, that none of them failed to boot, and what
// their agents report.
func checkMachines(f Facts) []Check {
	var out []Check
	for _, g := range f.Groups {
		out = append(out, checkGroup(f, g))
	}

	for _, i := range f.Instances {
		if i.State == "running" && !i.Bastion {
			out = append(out, checkMachine(f, i)...)
		}
	}

	return out
}

// checkGroup checks that a group has its running machines.
func checkGroup(f Facts, g Group) Check {
	c := Check{Kind: KindGroup, Name: g.label()}
	running := 0
	var others strings.Builder
	for _, i := range f.Instances {
		switch {
		case i.Group != g.Name || i.Slot != g.Slot:
		case i.State == "running":
			running++
		case i.State != "terminated":
			others.WriteString("; " + i.ID + " is " + i.State)
			if i.Why != "" {
				others.WriteString(" (" + i.Why + ")")
			}
		}
	}

	if running >= g.Size {
		return c
	}

	c.Severity = Failed
	c.Cause = fmt.Sprintf("%d of %d machines are running%s", running, g.Size, others.String())
	c.Hint = "wait (--wait 10m): the auto scaling group launches a machine"
	if g.ScalingFailure != "" {
		c.Cause += "; the last scaling activity failed: " + g.ScalingFailure
		c.Hint = "fix the reason of the scaling activity, such as capacity or a quota; AWS tries again by itself"
	}

	return c
}

// checkMachine checks one running machine. It returns one OK check, or one for each problem.
func checkMachine(f Facts, i Instance) []Check {
	c := Check{Kind: KindMachine, Name: machineName(i), Machine: i.ID}
	if last, failed := lastReport(i); failed {
		c.Severity = Failed
		c.Cause = reportText(last)
		c.Hint = last.Hint
		return []Check{c}
	}

	if checkSilence(f, i, &c); c.Severity == Failed {
		return []Check{c}
	}

	var out []Check
	r, _ := f.freshReport(i.ID)
	for _, condition := range r.Conditions {
		ok := condition.State == report.OK || kindOf(condition.Component) != KindMachine
		if !ok && !isEtcdVolumeAgain(r, condition) {
			out = append(out, conditionCheck(KindMachine, c.Name, i, condition))
		}
	}

	if len(out) == 0 {
		if f.APIError != "" {
			c.Cause = bootText(i)
		}

		return []Check{c}
	}

	return out
}

// checkSilence makes c a failed check if the machine is not heard of.
func checkSilence(f Facts, i Instance, c *Check) {
	r, reported := f.Reports[i.ID]
	silent := silenceOf(f, i)

	switch {
	case r.FromConsole && r.Etcd != nil && r.Etcd.Error != "":
		return // without its member, a machine's own API server takes no reports: the member is the cause

	case r.FromConsole && f.APIError == "":
		c.silent = silent.lease
		c.Cause = cutOffCause(silent)
		c.Hint = "check its network (security groups, routes) to the load balancer of the API; if it does not come back, " +
			"terminate it: its group replaces it"

	case !reported || silent.agent == 0:
		return

	case silent.lease > 0:
		c.Cause = fmt.Sprintf("unreachable or hung: its agent has not reported for %s, its kubelet for %s",
			formatAge(silent.agent), formatAge(silent.lease))
		c.Hint = "check its network (security groups, routes) and aws ec2 describe-instance-status --instance-ids " +
			i.ID + "; if it does not come back, terminate it: its group replaces it"

	default:
		c.Cause = fmt.Sprintf("its agent has not reported for %s; the kubelet still does", formatAge(silent.agent))
		c.Hint = "on the machine: systemctl status slipway-node, then systemctl restart slipway-node"
	}

	c.Severity = Failed
}

// isEtcdVolumeAgain reports whether c is about the disk of the etcd volume, and the condition of the volume
// already says so.
func isEtcdVolumeAgain(r MachineReport, c report.Condition) bool {
	volume, _ := r.Condition(report.EtcdVolume)

	return c.Component == report.DiskSpace && strings.HasPrefix(c.Cause, etcdMount+" ") && volume.State == report.Failed
}

// etcdMount is where machines mount the etcd volume.
const etcdMount = "/var/lib/slipway/etcd"

// cutOffCause describes a machine that reports on its console, because it does not reach the API.
func cutOffCause(silent silence) string {
	cause := "is cut off: its agent does not reach the API and reports on its console"
	if silent.lease > 0 {
		cause += "; its kubelet has not reported for " + formatAge(silent.lease)
	}

	return cause
}

// silence is for how long the programs of a machine have not been heard of; zero if they are not silent.
type silence struct{ agent, lease time.Duration }

func silenceOf(f Facts, i Instance) silence {
	var out silence
	if r, fresh := f.freshReport(i.ID); !fresh && !r.PublishedAt.IsZero() {
		out.agent = f.Now.Sub(r.PublishedAt)
		if missed, known := f.missedHeartbeats(r); known {
			out.agent = min(out.agent, missed)
		}
	}

	for _, n := range f.Nodes {
		if age := f.Now.Sub(n.LeaseRenewed); n.Instance == i.ID && !n.LeaseRenewed.IsZero() && age > LeaseTTL {
			out.lease = age
		}
	}

	return out
}

// machineName returns the id of a machine and its group.
func machineName(i Instance) string { return i.ID + " (" + i.label() + ")" }

// kindOf returns the kind of the checks of a machine's component.
func kindOf(component report.Component) string {
	switch component {
	case report.EtcdMember:
		return KindEtcd
	case report.KubeAPI:
		return KindAPI
	case report.Certificates:
		return KindCertificate
	default:
		return KindMachine
	}
}

// conditionCheck returns the check of a condition that an agent reports.
func conditionCheck(kind, name string, i Instance, c report.Condition) Check {
	out := Check{
		Kind:    kind,
		Name:    name,
		Machine: i.ID,
		Cause:   c.Cause,
		Hint:    c.Next,
		Since:   c.Since,
	}
	switch {
	case c.Component == report.OwnedFiles:
		out.Cause = "changed outside of slipway: " + c.Cause
		if c.State == report.Warning {
			out.Since = time.Time{} // it is over: the cause says when
		}

	case kind == KindMachine && !strings.Contains(c.Cause, string(c.Component)):
		out.Cause = string(c.Component) + ": " + c.Cause
	}

	out.Severity = map[report.State]Severity{report.Failed: Failed, report.Warning: Warning}[c.State]

	return out
}

// lastReport returns an instance's newest report, and whether it is a failure.
func lastReport(i Instance) (StageReport, bool) {
	if len(i.Reports) == 0 {
		return StageReport{}, false
	}

	last := i.Reports[len(i.Reports)-1]
	return last, last.State == "failed"
}

// bootText describes how far a running machine has booted, from its console: without the API, nothing else tells.
func bootText(i Instance) string {
	last, _ := lastReport(i)
	booted := slices.ContainsFunc(i.Reports, func(r StageReport) bool { return r.Stage == "ready" && r.State == "done" })

	switch {
	case booted:
		return "is running and has booted"
	case last.Stage == "":
		return "is running; its console has no report of its boot"
	default:
		return "is running; the last report of its boot: " + reportText(last)
	}
}

func reportText(r StageReport) string {
	text := fmt.Sprintf("stage %s %s", r.Stage, r.State)
	if r.Error != "" {
		text += ": " + r.Error
	}

	return text
}

// checkCertificates checks the certificates of all machines. The authorities are the same on all of them, so
// there is one check for each.
func checkCertificates(f Facts) []Check {
	var out []Check
	authorities := map[string]bool{}
	for _, i := range f.Instances {
		r, fresh := f.freshReport(i.ID)
		c, ok := r.Condition(report.Certificates)
		if !fresh || !ok || i.State != "running" {
			continue
		}

		name := machineName(i)
		if isAuthorityCause(r, c) {
			name = "authorities"
			if authorities[c.Cause] {
				continue
			}

			authorities[c.Cause] = true
			i.ID = ""
		}

		out = append(out, conditionCheck(KindCertificate, name, i, c))
	}

	return out
}

// isAuthorityCause reports whether c is about the certificate of an authority.
func isAuthorityCause(r MachineReport, c report.Condition) bool {
	return c.State != report.OK && len(c.Cause) > 2 && c.Cause[:2] == "CA" && !r.FromConsole
}
