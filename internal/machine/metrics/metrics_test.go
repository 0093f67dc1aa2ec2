// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/metrics"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// values returns the samples of a text: metric with labels → value.
func values(t *testing.T, text string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "# ") {
			continue
		}
		at := strings.LastIndex(line, " ")
		if at < 0 || out[line[:at]] != "" {
			t.Fatalf("line %q is not valid, or there twice", line)
		}
		out[line[:at]] = line[at+1:]
	}
	return out
}

// TestRender: what is known is there, and what is not known is not.
func TestRender(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	tested := func(id string, taken time.Time, ok bool) backup.Backup {
		return backup.Backup{
			Metadata:     backup.Metadata{ID: id, TakenAt: taken},
			Verification: &backup.Verification{OK: ok, VerifiedAt: taken.Add(time.Minute)},
		}
	}
	list := []backup.Backup{
		tested("a", at, true), tested("b", at.Add(time.Hour), false),
		{Metadata: backup.Metadata{TakenAt: at.Add(2 * time.Hour)}},
		{Metadata: backup.Metadata{TakenAt: at.Add(9 * time.Hour), Origin: &backup.Origin{}}},
		tested("d", at.Add(8760*time.Hour), true), // of a machine whose clock was a year ahead
	}
	text := string(metrics.Render(metrics.Facts{
		Slots:      3,
		Generation: 2,
		Report: &report.Report{
			Conditions: []report.Condition{{Component: report.EtcdMember, State: report.Failed, Cause: `secret "cause"`}},
			Disks:      []report.Disk{{Path: "/", UsedBytes: 5, SizeBytes: 10}, {Path: etcd.DataMount, Error: "gone"}},
			Etcd:       &report.Etcd{Quorum: true, Alarms: []string{"CORRUPT"}},
			Certificates: []report.Certificate{
				{Name: "kubelet", NotAfter: at.Add(3 * time.Hour), RenewAt: at.Add(time.Hour)},
				{Name: "kubelet", NotAfter: at.Add(2 * time.Hour), RenewAt: at},
				{Name: "kubernetes-ca", NotAfter: at.Add(9 * time.Hour), CA: true},
			},
		},
		Quorum:  &etcd.QuorumReport{LostAt: at, LostData: true, Step: etcd.RecoverManual, Reason: "secret"},
		Policy:  &backup.Policy{Interval: time.Hour, VerifyEvery: 6},
		Backups: metrics.NewBackups(backup.Policy{Interval: time.Hour, VerifyEvery: 6}, list, at.Add(3*time.Hour)),
	}))
	if strings.Contains(text, "secret") {
		t.Errorf("the metrics say more than numbers:\n%s", text)
	}
	got := values(t, text)
	for name, want := range map[string]string{
		"slipway_etcd_slots":                                     "3",
		"slipway_etcd_generation":                                "2",
		`slipway_component_state{component="etcd"}`:              "2",
		`slipway_disk_used_bytes{path="/"}`:                      "5",
		`slipway_disk_size_bytes{path="/"}`:                      "10",
		`slipway_disk_size_bytes{path="` + etcd.DataMount + `"}`: "",
		"slipway_etcd_member_quorum":                             "1",
		"slipway_etcd_member_learner":                            "0",
		`slipway_etcd_alarm{alarm="CORRUPT"}`:                    "1",
		`slipway_etcd_alarm{alarm="NOSPACE"}`:                    "0",
		"slipway_etcd_quorum_lost_timestamp_seconds":             "1800000000",
		"slipway_etcd_majority_lost":                             "1",
		`slipway_etcd_recovery_step{step="manual"}`:              "1",
		`slipway_etcd_recovery_step{step="wait"}`:                "0",
		"slipway_etcd_backups":                                   "5",
		"slipway_etcd_backup_interval_seconds":                   "3600",

		`slipway_certificate_expiration_timestamp_seconds{certificate="kubelet"}`:       "1800007200",
		`slipway_certificate_renewal_timestamp_seconds{certificate="kubelet"}`:          "1800000000",
		`slipway_certificate_expiration_timestamp_seconds{certificate="kubernetes-ca"}`: "1800032400",
		`slipway_certificate_renewal_timestamp_seconds{certificate="kubernetes-ca"}`:    "",

		"slipway_etcd_backup_test_interval_seconds":         "21600",
		"slipway_etcd_backup_timestamp_seconds":             "1800007200",
		"slipway_etcd_backup_tested_timestamp_seconds":      "1800000060",
		"slipway_etcd_backup_failed_test_timestamp_seconds": "1800003660",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for _, f := range metrics.Families() {
		if !strings.Contains(text, "# HELP "+f.Name+" ") || !strings.Contains(text, "# TYPE "+f.Name+" gauge\n") {
			t.Errorf("%s is not described", f.Name)
		}
	}
}

// TestRenderUnknown: before anything is known, and when the member does not answer or has a quorum again.
func TestRenderUnknown(t *testing.T) {
	got := values(t, string(metrics.Render(metrics.Facts{Slots: 1})))
	if len(got) != 3 || got["slipway_etcd_quorum_lost_timestamp_seconds"] != "0" {
		t.Errorf("nothing is known: %v", got)
	}
	disabled := backup.Policy{Interval: time.Hour, VerifyEvery: 6, Disabled: true}
	got = values(t, string(metrics.Render(metrics.Facts{
		Report:  &report.Report{Etcd: &report.Etcd{Error: "no answer"}},
		Quorum:  &etcd.QuorumReport{LostData: true, Step: etcd.RecoverNothing},
		Policy:  &disabled,
		Backups: metrics.NewBackups(disabled, nil, time.Now()),
	})))
	for name, want := range map[string]string{
		"slipway_etcd_member_quorum":                 "0",
		"slipway_etcd_member_learner":                "",
		`slipway_etcd_alarm{alarm="CORRUPT"}`:        "",
		"slipway_etcd_quorum_lost_timestamp_seconds": "0",
		"slipway_etcd_majority_lost":                 "0",
		"slipway_etcd_backup_interval_seconds":       "0",
		"slipway_etcd_backup_test_interval_seconds":  "0",
		"slipway_etcd_backup_timestamp_seconds":      "",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}
