// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limits of what is OK.
const (
	// The kubelet evicts pods when 10% of the root disk are free (evictionHard, nodefs.available).
	warnDiskPercent = 85
	failDiskPercent = 95
	// etcd refuses writes when its database reaches the quota.
	warnQuotaPercent = 80
	// A quarter of etcd's election timeout, and a bound of its metric.
	slowSyncMillis = 256
	// An authority is not renewed by agents: 30 days is time enough to plan its rotation.
	warnAuthority = 30 * 24 * time.Hour
	// A leaf is renewed after two thirds of its lifetime. This is how long a renewal may fail at most before the
	// operator hears of it, and the part of the time that is left then: half an hour for a certificate of 12 hours.
	renewalGrace     = 6 * time.Hour
	renewalGracePart = 8
)

// Evaluate returns the conditions that follow from the measurements of r, without Since. Its own conditions
// are not read.
func Evaluate(r Report) []Condition {
	out := []Condition{
		evaluateService(Kubelet, r.Kubelet),
		evaluateService(Containerd, r.Containerd),
		evaluateDisks(r.Disks),
		evaluateCertificates(r.Certificates, r.Time),
	}

	if r.APIServer != nil {
		out = append(out, evaluateAPIServer(*r.APIServer))
	}

	if r.Etcd != nil {
		out = append(out, evaluateEtcd(*r.Etcd))
	}

	return out
}

func evaluateService(component Component, s Service) Condition {
	c := Condition{Component: component, State: OK}
	stopped := s.Unit != "" && s.Unit != "active" && s.Unit != "activating" && s.Unit != "reloading"

	switch {
	case stopped:
		c.State = Failed
		c.Cause = fmt.Sprintf("systemd unit %s is %s", component, s.Unit)
		c.Next = fmt.Sprintf("wait 15 s: the agent starts it again; if it stops again, read its journal "+
			"(journalctl -u %s), or terminate the machine: its group replaces it", component)

		return c
	case s.Error != "":
		c.Cause = fmt.Sprintf("%s does not answer: %s", component, s.Error)
	default:
		return c
	}

	c.State = Failed
	c.Next = fmt.Sprintf("read its journal (journalctl -u %s) and restart it, or terminate the machine: "+
		"its group replaces it", component)

	return c
}

func evaluateAPIServer(s APIServer) Condition {
	c := Condition{Component: KubeAPI, State: OK}
	switch {
	case s.Error != "":
		c.Cause = "kube-apiserver does not answer: " + s.Error
		c.Next = "read its log on the machine: crictl ps -a --name kube-apiserver, crictl logs ID"
	case !s.Ready:
		c.Cause = "not ready: failed checks of /readyz: " + strings.Join(s.FailedChecks, ", ")
		if slices.Contains(s.FailedChecks, "etcd") {
			c.Next = "fix etcd first: the API server is ready when etcd answers"
		}
	default:
		return c
	}

	c.State = Failed

	return c
}

func evaluateEtcd(e Etcd) Condition {
	c := Condition{Component: EtcdMember, State: Failed}
	switch {
	case e.Error != "":
		c.Cause = "etcd does not answer: " + e.Error
		c.Next = "read its journal (journalctl -u etcd); if it does not answer again by itself: systemctl restart etcd"
	case slices.Contains(e.Alarms, "NOSPACE"):
		c.Cause = fmt.Sprintf("alarm NOSPACE: the database has %s of its quota of %s; etcd refuses all writes",
			formatBytes(e.DBSize), formatBytes(e.Quota))
		c.Next = "delete what fills it (also while the alarm is raised): within minutes the agents compact, defragment and " +
			"disarm the alarm"
	case slices.Contains(e.Alarms, "CORRUPT"):
		c.Cause = "alarm CORRUPT: the data of the members differs; etcd refuses reads and writes"
		c.Next = "wait 2 minutes: a member whose data is not that of the majority sets it aside and joins again; if the alarm " +
			"stays, there is no majority: restore a backup with: slipway etcd restore"
	case len(e.Alarms) > 0:
		c.Cause = "alarm " + strings.Join(e.Alarms, ", ")
		c.Next = "replace the member: terminate the machine and delete its volume, one slot at a time"
	case !e.Quorum:
		c.Cause = noQuorumCause(e)
		c.Next = "start the members that are missing; data is safe and returns with the quorum"
	case e.Learner:
		c.State = Warning
		c.Cause = "is a learner still catching up; it does not vote yet"
		c.Next = "wait: the agent promotes it when it has all data"
	case e.Quota > 0 && e.DBSize*100 >= e.Quota*warnQuotaPercent:
		c.State = Warning
		c.Cause = fmt.Sprintf("the database has %s of its quota of %s; etcd refuses all writes when it is full",
			formatBytes(e.DBSize), formatBytes(e.Quota))
		c.Next = "find what fills it (kubectl get --raw /metrics, apiserver_storage_objects), delete it, " +
			"and wait: the agents defragment"
	case e.SyncMillis > slowSyncMillis:
		c.State = Warning
		c.Cause = fmt.Sprintf("its disk is slow: more than 1%% of the writes of the log take longer than %d ms", slowSyncMillis)
		c.Next = "set more iops or throughput (spec.etcd.volume), or a larger machine type; etcd's documentation asks for " +
			"10 ms; above 1 s the leader changes"
	default:
		c.State = OK
	}

	return c
}

// noQuorumCause says which peers a member without a quorum does not reach.
func noQuorumCause(e Etcd) string {
	var silent []string
	for _, p := range e.Peers {
		if p.Error != "" {
			silent = append(silent, "etcd-"+p.Slot+" ("+p.Error+")")
		}
	}

	voters := len(e.Peers) + 1
	if len(silent) == 0 {
		return fmt.Sprintf("no quorum yet: reaches all %d members, and follows no leader", voters)
	}

	return fmt.Sprintf("no quorum: answers %d of %d members; does not reach %s",
		voters-len(silent), voters, strings.Join(silent, ", "))
}

func evaluateDisks(disks []Disk) Condition {
	worst := Condition{Component: DiskSpace, State: OK}
	for _, d := range disks {
		if c := evaluateDisk(d); c.State.isWorseThan(worst.State) {
			worst = c
		}
	}

	return worst
}

// Fails reports whether the disk is so full, or so broken, that the condition of the machine's disks has failed.
func (d Disk) Fails() bool { return evaluateDisk(d).State == Failed }

func evaluateDisk(d Disk) Condition {
	c := Condition{Component: DiskSpace, State: OK}
	used := d.UsedPercent()
	what := "bytes"
	if d.InodesUsedPercent > used {
		used = d.InodesUsedPercent
		what = "inodes"
	}

	switch {
	case d.Error != "":
		c.State = Failed
		c.Cause = d.Path + " cannot be read: " + d.Error
		c.Next = "check the volume and the kernel's log (dmesg)"
		return c
	case d.ReadOnly:
		c.State = Failed
		c.Cause = d.Path + " is mounted read-only"
		c.Next = "read the kernel's log (dmesg): Linux does this after an error of the volume"
		return c
	case used >= failDiskPercent:
		c.State = Failed
	case used >= warnDiskPercent:
		c.State = Warning
	default:
		return c
	}

	c.Cause = fmt.Sprintf("%s is %d%% full (%s of %s)", d.Path, used, formatBytes(d.UsedBytes), formatBytes(d.SizeBytes))
	if what == "inodes" {
		c.Cause = fmt.Sprintf("%s has used %d%% of its inodes", d.Path, used)
	}

	c.Next = "delete files there, or set a larger volume in the manifest and run slipway apply"

	return c
}

func evaluateCertificates(certificates []Certificate, now time.Time) Condition {
	worst := Condition{Component: Certificates, State: OK}
	for _, certificate := range certificates {
		if c := evaluateCertificate(certificate, now); c.State.isWorseThan(worst.State) {
			worst = c
		}
	}

	return worst
}

func evaluateCertificate(certificate Certificate, now time.Time) Condition {
	c := Condition{Component: Certificates, State: OK}
	kind := "certificate"
	if certificate.CA {
		kind = "CA certificate"
	}

	expires := certificate.NotAfter.UTC().Format(time.RFC3339)
	grace := min(renewalGrace, certificate.NotAfter.Sub(certificate.RenewAt)/renewalGracePart)
	renewed := !certificate.CA && now.Before(certificate.RenewAt.Add(grace))

	switch left := certificate.NotAfter.Sub(now); {
	case left <= 0:
		c.State = Failed
		c.Cause = fmt.Sprintf("%s %s expired at %s", kind, certificate.Name, expires)
	case certificate.CA && left < warnAuthority:
		c.State = Warning
		c.Cause = fmt.Sprintf("%s %s expires in %d days, at %s", kind, certificate.Name, int(left.Hours())/24, expires)
	case !certificate.CA && !renewed:
		c.State = Warning
		c.Cause = fmt.Sprintf("%s %s was due for renewal at %s and expires at %s", kind, certificate.Name,
			certificate.RenewAt.UTC().Format(time.RFC3339), expires)
	default:
		return c
	}

	c.Next = "read the agent's journal for the reason: journalctl -u slipway-node"
	if certificate.CA {
		c.Next = "rotate the CA before it expires: no client can connect with it afterwards"
	}

	return c
}

// isWorseThan orders the states.
func (s State) isWorseThan(other State) bool {
	order := []State{OK, Warning, Failed}
	return slices.Index(order, s) > slices.Index(order, other)
}

// formatBytes formats a size in MiB or GiB.
func formatBytes(n int64) string {
	const mebibyte = 1 << 20
	const gibibyte = 1 << 30
	if n >= gibibyte {
		return fmt.Sprintf("%.1f GiB", float64(n)/gibibyte)
	}

	return fmt.Sprintf("%d MiB", n/mebibyte)
}
