// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// TestRecoveryIsShown: an operator sees since when the quorum is missing and what happens when, and afterwards what was lost.
func TestRecoveryIsShown(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	loss := func(change func(*health.QuorumLoss)) *health.Recovery {
		l := health.QuorumLoss{
			Slot: "a", LostData: true, Reason: "the data of 2 of 3 members is lost (b, c)",
			LostAt: now.Add(-5 * time.Minute), ReportedAt: now.Add(-10 * time.Second),
		}
		change(&l)
		return &health.Recovery{Waiting: []health.QuorumLoss{l}}
	}
	recovered := func(at time.Time, survivor bool) *health.Recovery {
		return &health.Recovery{Last: &health.Recovered{At: at, Backup: "b1", Survivor: survivor, Slot: "a", Loss: "writes after revision 7"}}
	}
	for name, c := range map[string]struct {
		facts    health.Facts
		severity health.Severity
		cause    string
		hint     string
	}{
		"due": {
			health.Facts{Recovery: loss(func(l *health.QuorumLoss) { l.DueAt = now.Add(5 * time.Minute) })},
			health.Critical, "no quorum for 5m: the data of 2 of 3 members is lost (b, c)", "the machines recover etcd in 5m",
		},
		"at work": {
			health.Facts{Recovery: loss(func(*health.QuorumLoss) {})}, health.Critical, "no quorum for 5m", "wait: the machines recover etcd, and create the volumes",
		},
		"manual": {
			health.Facts{Recovery: loss(func(l *health.QuorumLoss) { l.Manual = true })},
			health.Critical, "no quorum for 5m", "slipway etcd restore",
		},
		"an old report": {
			health.Facts{Recovery: loss(func(l *health.QuorumLoss) { l.ReportedAt = now.Add(-time.Hour) })}, "", "", "",
		},
		"machines that come back": {
			health.Facts{Recovery: loss(func(l *health.QuorumLoss) { l.LostData = false })}, "", "", "",
		},
		"etcd works again": {
			health.Facts{
				Recovery:  loss(func(*health.QuorumLoss) {}),
				Instances: []health.Instance{{ID: "i-1", State: "running"}},
				Reports: map[string]health.MachineReport{"i-1": {
					Report: report.Report{Etcd: &report.Etcd{Quorum: true}}, PublishedAt: now,
				}},
			}, "", "", "",
		},
		"recovered from a survivor": {
			health.Facts{Recovery: recovered(now.Add(-time.Hour), true)},
			health.Warning, "etcd was recovered 60m ago from the data of etcd-a, backup b1; lost: writes after revision 7", "--recreate-lost-volumes",
		},
		"recovered from a backup": {
			health.Facts{Recovery: recovered(now.Add(-time.Hour), false)}, health.Warning, "60m ago from backup b1; lost", "for a day",
		},
		"recovered long ago": {health.Facts{Recovery: recovered(now.Add(-25*time.Hour), false)}, "", "", ""},
	} {
		c.facts.Now = now
		found := false
		for _, check := range health.Evaluate(c.facts).Checks {
			if check.Kind != health.KindEtcd || check.Name != "recovery" {
				continue
			}
			found = true
			if check.Severity != c.severity || !strings.Contains(check.Cause, c.cause) || !strings.Contains(check.Hint, c.hint) {
				t.Errorf("%s: %+v", name, check)
			}
		}
		if found != (c.severity != "") {
			t.Errorf("%s: found %t", name, found)
		}
	}
}
