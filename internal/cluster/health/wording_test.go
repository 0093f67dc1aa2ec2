// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// TestMemberThatFollowsNoLeaderYet: a member that reaches all others is not cut off from them.
func TestMemberThatFollowsNoLeaderYet(t *testing.T) {
	f := healthyCluster()
	measured(&f, 2, func(r *report.Report) { r.Etcd.Quorum = false })
	for _, c := range health.Evaluate(f).Checks {
		if c.Name != "etcd-c" {
			continue
		}
		if c.Cause != "no quorum yet: reaches all 3 members, and follows no leader" || !strings.HasPrefix(c.Hint, "wait ") {
			t.Errorf("%+v", c)
		}
		return
	}
	t.Error("there is no check of etcd-c")
}

// TestRestorationIsOver: what was restored is told with the time of the restoration, and not as something that lasts.
func TestRestorationIsOver(t *testing.T) {
	f := healthyCluster()
	addCondition(&f, 0, report.Condition{
		Component: report.OwnedFiles, State: report.Warning, Since: now.Add(-10 * time.Second),
		Cause: "systemd unit kubelet was stopped; restored at 11:59:52",
	})
	var lines []string
	for _, l := range health.Evaluate(f).Lines("demo") {
		lines = append(lines, l.Text)
	}
	const want = "WARNING  machine i-0c4e1 (control-plane-a): changed outside of slipway: systemd unit kubelet was stopped; restored at 11:59:52"
	if lines[0] != want {
		t.Errorf("got %q, want %q", lines[0], want)
	}
}

// TestMissedMemberHasNoDuration: the condition of a member that its own machine still finds in order says since when it
// has been in order. That is not how long the others have missed it.
func TestMissedMemberHasNoDuration(t *testing.T) {
	f := healthyCluster()
	addCondition(&f, 0, report.Condition{Component: report.EtcdMember, State: report.OK, Since: now.Add(-2 * time.Hour)})
	peerMissed(&f, 0, "context deadline exceeded")
	for _, c := range health.Evaluate(f).Checks {
		if c.Name != "etcd-a" {
			continue
		}

		if c.Severity != health.Failed || !c.Since.IsZero() || !strings.Contains(c.Hint, "wait 10 s") {
			t.Errorf("%+v", c)
		}

		return
	}

	t.Error("there is no check of etcd-a")
}
