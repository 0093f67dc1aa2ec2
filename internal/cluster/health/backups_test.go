// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

func TestBackups(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	taken := func(ago time.Duration) *backup.Backup {
		return &backup.Backup{Metadata: backup.Metadata{ID: "b1", Cluster: "demo", Machine: "i-a", TakenAt: now.Add(-ago)}}
	}
	tested := func(ago time.Duration, problem string) *backup.Backup {
		b := taken(ago)
		b.Verification = &backup.Verification{OK: problem == "", HashCompared: problem == "", Error: problem, VerifiedAt: now.Add(-ago)}
		return b
	}
	unhashed := tested(2*time.Hour, "")
	unhashed.Verification.HashCompared = false
	for name, c := range map[string]struct {
		newest, tested *backup.Backup
		future         *backup.Backup
		unreadable     []backup.Unreadable
		disabled       bool
		uptime         int // seconds
		want           health.Severity
		text           string
	}{
		"new control plane":  {uptime: 60},
		"none after an hour": {uptime: 3600, want: health.Warning, text: "etcd has no backup"},
		"none, disabled":     {uptime: 3600, disabled: true},
		"recent and tested":  {newest: taken(30 * time.Minute), tested: tested(2*time.Hour, ""), want: health.OK, text: "newest backup 30m old, restored successfully in a test 2h ago"},
		"tested without a hash": {
			newest: taken(30 * time.Minute), tested: unhashed, want: health.OK,
			text: "restored successfully in a test 2h ago (revision and number of keys compared, not the contents)",
		},
		"the first one":   {newest: taken(time.Minute), want: health.OK, text: "none was tested yet"},
		"never tested":    {newest: taken(11 * time.Minute), want: health.Warning, text: "none was tested yet"},
		"too old":         {newest: taken(4 * time.Hour), tested: tested(4*time.Hour, ""), want: health.Warning, text: "newest backup 4h old"},
		"test is too old": {newest: taken(time.Minute), tested: tested(19*time.Hour, ""), want: health.Warning, text: "in a test 19h ago"},
		"test failed":     {newest: taken(time.Minute), tested: tested(time.Minute, "the backup is damaged"), want: health.Warning, text: "backup b1 cannot be restored: the backup is damaged"},
		"none but from the future": {
			uptime: 60, future: taken(-5 * time.Hour), want: health.Warning,
			text: "no backup but backup b1 was taken in the future (2026-11-22T17:00:00Z), by machine i-a",
		},
		"from the future besides": {
			newest: taken(30 * time.Minute), tested: tested(2*time.Hour, ""), future: taken(-5 * time.Hour), want: health.Warning,
			text: "newest backup 30m old, restored successfully in a test 2h ago; backup b1 was taken in the future",
		},
		"too old, and one from the future": {
			newest: taken(4 * time.Hour), tested: tested(4*time.Hour, ""), future: taken(-5 * time.Hour), want: health.Warning,
			text: "newest backup 4h old",
		},
		"none but unreadable ones": {
			uptime: 60, unreadable: []backup.Unreadable{{ID: "b3", Reason: "format 9"}, {ID: "b2", Reason: "no JSON"}}, want: health.Warning,
			text: "etcd has no backup that can be read: backup b3 is not used: format 9 (and 1 others)",
		},
		"an unreadable one besides": {
			newest: taken(30 * time.Minute), tested: tested(2*time.Hour, ""), unreadable: []backup.Unreadable{{ID: "b3", Reason: "format 9"}},
			want: health.Warning, text: "restored successfully in a test 2h ago; backup b3 is not used: format 9",
		},
		"old ones and disabled": {newest: taken(400 * time.Hour), tested: tested(400*time.Hour, ""), disabled: true, want: health.OK, text: "newest backup 16d old"},
	} {
		t.Run(name, func(t *testing.T) {
			f := health.Facts{
				Now: now, Groups: []health.Group{{Name: "control-plane", Slot: "a", Size: 1}},
				Instances: []health.Instance{{ID: "i-a", Group: "control-plane", Slot: "a", State: "running"}},
				Reports: map[string]health.MachineReport{"i-a": {PublishedAt: now, Report: report.Report{
					NextSeconds: 5, Machine: "i-a", ListeningSeconds: c.uptime, Etcd: &report.Etcd{Quorum: true},
				}}},
				Backups: &health.Backups{
					Policy: backup.Policy{Disabled: c.disabled, Interval: time.Hour, VerifyEvery: 6}, Newest: c.newest, Tested: c.tested,
					Future: c.future, Unreadable: c.unreadable,
				},
			}
			r := health.Evaluate(f)
			var got health.Check
			for _, check := range r.Checks {
				if check.Name == "backups" {
					got = check
				}
			}
			if got.Severity != c.want || !strings.Contains(got.Cause, c.text) {
				t.Errorf("%+v, want %s with %q", got, c.want, c.text)
			}
			if got.Severity == health.Warning && got.Hint == "" {
				t.Error("no hint")
			}
			lines := r.Lines("demo")
			printed := false
			for _, line := range lines {
				printed = printed || c.text != "" && strings.Contains(line.Text, c.text)
			}
			if printed != (c.text != "") {
				t.Errorf("printed %t: %+v", printed, lines)
			}
		})
	}
}
