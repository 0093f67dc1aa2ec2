// SPDX-License-Identifier: Apache-2.0

// Package metrics renders what the agent of a control-plane machine knows of its machine and of etcd in Prometheus' text format.
//
// [Render] is a pure function from [Facts]. It says nothing secret: no error messages, addresses or ids of objects. What is not known
// has no sample, so that an alert can tell "unknown" from zero. The agent serves the text on the machine itself only (package agent).
package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// Facts are what the metrics are made of.
type Facts struct {
	// Report is the machine's last report; nil before the first one.
	Report *report.Report
	// Slots is the number of slots of the control plane: so many etcd members are to vote.
	Slots int
	// Generation of the data on the etcd volume; 0: there is none.
	Generation int
	// Quorum is the machine's last report on a missing quorum; nil if it has not reported any.
	Quorum *etcd.QuorumReport
	// Policy of the backups, by the machine's document; nil if it is not known.
	Policy *backup.Policy
	// Backups are known to the machine of etcd's leader, and to machines that had the leader; nil on others.
	Backups *Backups
}

// Backups is what the last list of the backups of etcd says. A time is zero if there is none.
type Backups struct {
	// Count is how many there are.
	Count int
	// NewestAt is when the newest backup was taken.
	NewestAt time.Time
	// TestedAt is when a backup was restored successfully in a test for the last time.
	TestedAt time.Time
	// FailedAt is when a test failed for the last time.
	FailedAt time.Time
}

// NewBackups returns what a list of backups says. Times in the future would hide for as long that none is taken or tested.
func NewBackups(policy backup.Policy, list []backup.Backup, now time.Time) *Backups {
	out := &Backups{Count: len(list)}
	for _, b := range list {
		if b.Origin != nil || b.FromFuture(now, policy) { // of another cluster, or of a machine with a wrong clock
			continue
		}

		out.NewestAt = later(out.NewestAt, b.TakenAt)
		if b.Verified() {
			out.TestedAt = later(out.TestedAt, b.TestedAt(now, policy))
		} else if b.Broken() {
			out.FailedAt = later(out.FailedAt, b.TestedAt(now, policy))
		}
	}

	return out
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}

	return a
}

// Family is a metric with its description.
type Family struct {
	Name, Help string
}

// The names of the metrics.
const (
	componentState = "slipway_component_state"
	diskUsed       = "slipway_disk_used_bytes"
	diskSize       = "slipway_disk_size_bytes"
	certExpires    = "slipway_certificate_expiration_timestamp_seconds"
	certRenewal    = "slipway_certificate_renewal_timestamp_seconds"
	etcdSlots      = "slipway_etcd_slots"
	etcdGeneration = "slipway_etcd_generation"
	memberQuorum   = "slipway_etcd_member_quorum"
	memberLearner  = "slipway_etcd_member_learner"
	etcdAlarm      = "slipway_etcd_alarm"
	quorumLost     = "slipway_etcd_quorum_lost_timestamp_seconds"
	dataLost       = "slipway_etcd_majority_lost"
	recoveryStep   = "slipway_etcd_recovery_step"
	backups        = "slipway_etcd_backups"
	backupInterval = "slipway_etcd_backup_interval_seconds"
	testInterval   = "slipway_etcd_backup_test_interval_seconds"
	backupNewest   = "slipway_etcd_backup_timestamp_seconds"
	backupTested   = "slipway_etcd_backup_tested_timestamp_seconds"
	backupFailed   = "slipway_etcd_backup_failed_test_timestamp_seconds"
)

// Families returns all metrics, in the order in which they are rendered. All are gauges.
func Families() []Family {
	return []Family{
		{componentState, "State of a component of the machine: 0 works, 1 somebody has to do something, 2 failed."},
		{diskUsed, "Bytes in use on a file system."},
		{diskSize, "Size of a file system in bytes."},
		{certExpires, "When a certificate on the machine expires. The newest certificate of an authority counts."},
		{certRenewal, "When the agent renews a certificate on the machine. The certificates of authorities have none."},
		{etcdSlots, "Number of etcd members that the cluster is to have."},
		{etcdGeneration, "Generation of the data of the machine's etcd member: 1, and one more for each restoration; 0 without data."},
		{memberQuorum, "1 if the machine's etcd member answers linearizable reads, which need a quorum."},
		{memberLearner, "1 if the machine's etcd member has no vote yet."},
		{etcdAlarm, "1 if the alarm is raised in etcd."},
		{quorumLost, "Since when the machine has reached no quorum of etcd; 0 if it reaches one."},
		{dataLost, "1 if the machine found that the data of a majority of the etcd members is lost."},
		{recoveryStep, "1 for the machine's last decision about a missing quorum of etcd."},
		{backups, "Number of backups in the last list. Only machines that have or had the leader list them."},
		{backupInterval, "Time between two backups of etcd; 0 if none are scheduled."},
		{testInterval, "Time between two tests of backups of etcd; 0 if none are scheduled."},
		{backupNewest, "When the newest backup of etcd was taken. The greatest value of all machines counts."},
		{backupTested, "When a backup of etcd was last restored in a test. The greatest value of all machines counts."},
		{backupFailed, "When a test of a backup of etcd last failed. The greatest value of all machines counts."},
	}
}

// sample is one value of a metric.
type sample struct {
	labels map[string]string
	value  float64
}

// Render returns the metrics in Prometheus' text format.
func Render(f Facts) []byte {
	samples := map[string][]sample{}
	add := func(name string, value float64, labels map[string]string) {
		samples[name] = append(samples[name], sample{labels, value})
	}

	add(etcdSlots, float64(f.Slots), nil)
	add(etcdGeneration, float64(f.Generation), nil)
	if f.Report != nil {
		addReport(add, *f.Report)
	}

	if f.Quorum != nil {
		addQuorum(add, *f.Quorum)
	} else {
		add(quorumLost, 0, nil)
	}

	if f.Policy != nil {
		addPolicy(add, *f.Policy)
	}

	if f.Backups != nil {
		addBackups(add, *f.Backups)
	}

	var out strings.Builder
	for _, family := range Families() {
		if len(samples[family.Name]) == 0 {
			continue
		}

		fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s gauge\n", family.Name, family.Help, family.Name)
		for _, s := range samples[family.Name] {
			out.WriteString(family.Name + formatLabels(s.labels) + " " + strconv.FormatFloat(s.value, 'f', -1, 64) + "\n")
		}
	}

	return []byte(out.String())
}

// addFunc adds a sample.
type addFunc func(name string, value float64, labels map[string]string)

func addReport(add addFunc, r report.Report) {
	for _, c := range r.Conditions {
		state := slices.Index([]report.State{report.OK, report.Warning, report.Failed}, c.State)
		add(componentState, float64(state), map[string]string{"component": string(c.Component)})
	}

	for _, d := range r.Disks {
		if d.Error != "" {
			continue
		}

		labels := map[string]string{"path": d.Path}
		add(diskUsed, float64(d.UsedBytes), labels)
		add(diskSize, float64(d.SizeBytes), labels)
	}

	addCertificates(add, r.Certificates)
	if r.Etcd == nil {
		return
	}

	add(memberQuorum, number(r.Etcd.Quorum), nil)
	if r.Etcd.Error != "" {
		return
	}

	add(memberLearner, number(r.Etcd.Learner), nil)
	for _, alarm := range []string{etcd.AlarmCorrupt, etcd.AlarmNoSpace} {
		add(etcdAlarm, number(slices.Contains(r.Etcd.Alarms, alarm)), map[string]string{"alarm": alarm})
	}
}

// addCertificates adds one sample a name: while a certificate is renewed, directories may have different ones of the same
// name. The one that expires first counts.
func addCertificates(add addFunc, list []report.Certificate) {
	first := map[string]report.Certificate{}
	for _, c := range list {
		if before, ok := first[c.Name]; !ok || c.NotAfter.Before(before.NotAfter) {
			first[c.Name] = c
		}
	}

	for _, name := range slices.Sorted(maps.Keys(first)) {
		labels := map[string]string{"certificate": name}
		add(certExpires, seconds(first[name].NotAfter), labels)
		if !first[name].RenewAt.IsZero() {
			add(certRenewal, seconds(first[name].RenewAt), labels)
		}
	}
}

func addQuorum(add addFunc, q etcd.QuorumReport) {
	add(quorumLost, seconds(q.LostAt), nil)
	isMissing := !q.LostAt.IsZero()
	add(dataLost, number(isMissing && q.LostData), nil)
	for _, step := range []etcd.RecoveryStepType{
		etcd.RecoverWait, etcd.RecoverManual, etcd.RecoverSave, etcd.RecoverVerify, etcd.RecoverBegin,
	} {
		add(recoveryStep, number(isMissing && q.Step == step), map[string]string{"step": string(step)})
	}
}

func addPolicy(add addFunc, p backup.Policy) {
	interval := p.Interval.Seconds()
	if p.Disabled {
		interval = 0
	}

	add(backupInterval, interval, nil)
	add(testInterval, interval*float64(p.VerifyEvery), nil)
}

func addBackups(add addFunc, b Backups) {
	add(backups, float64(b.Count), nil)
	for name, at := range map[string]time.Time{backupNewest: b.NewestAt, backupTested: b.TestedAt, backupFailed: b.FailedAt} {
		if !at.IsZero() {
			add(name, seconds(at), nil)
		}
	}
}

// seconds returns a time as Prometheus counts it; 0 for the zero time.
func seconds(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}

	return float64(at.UnixMilli()) / 1000 //nolint:mnd // milliseconds in a second
}

func number(b bool) float64 {
	if b {
		return 1
	}

	return 0
}

// formatLabels returns labels sorted by name.
func formatLabels(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}

	var out []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, name+"="+strconv.Quote(labels[name]))
	}

	return "{" + strings.Join(out, ",") + "}"
}
