// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/machine/report"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// healthy is the report of a control-plane machine on which everything works.
func healthy() report.Report {
	return report.Report{
		Time:       now,
		Machine:    "i-1",
		Slot:       "a",
		Kubelet:    report.Service{Unit: "active"},
		Containerd: report.Service{Unit: "active"},
		APIServer:  &report.APIServer{Ready: true},
		Etcd: &report.Etcd{
			Quorum:   true,
			MemberID: "1",
			LeaderID: "1",
			Quota:    8 << 30,
			Peers:    []report.Peer{{Slot: "b"}, {Slot: "c"}},
		},
		Disks: []report.Disk{{Path: "/", UsedBytes: 10 << 30, SizeBytes: 20 << 30}},
		Certificates: []report.Certificate{
			{Name: "kubernetes-ca", CA: true, NotAfter: now.AddDate(9, 0, 0)},
			{Name: "apiserver", RenewAt: now.Add(time.Hour), NotAfter: now.Add(57 * time.Hour)},
		},
	}
}

func TestEvaluate(t *testing.T) {
	tests := map[string]struct {
		change func(*report.Report)
		want   map[report.Component]string // state and cause of those that are not OK
	}{
		"everything works": {change: func(*report.Report) {}},
		"the kubelet is stopped": {
			change: func(r *report.Report) { r.Kubelet = report.Service{Unit: "inactive", Error: "connection refused"} },
			want:   map[report.Component]string{report.Kubelet: "failed: systemd unit kubelet is inactive"},
		},
		"the kubelet hangs": {
			change: func(r *report.Report) { r.Kubelet.Error = "timeout" },
			want:   map[report.Component]string{report.Kubelet: "failed: kubelet does not answer: timeout"},
		},
		"containerd restarts": {
			change: func(r *report.Report) { r.Containerd.Unit = "activating" },
		},
		"the member is stopped": {
			change: func(r *report.Report) { r.Etcd = &report.Etcd{Error: "connection refused"} },
			want:   map[report.Component]string{report.EtcdMember: "failed: etcd does not answer: connection refused"},
		},
		"the quorum is lost": {
			change: func(r *report.Report) {
				r.Etcd.Quorum = false
				r.Etcd.Peers[0].Error = "timeout"
				r.Etcd.Peers[1].Error = "no route to host"
				r.APIServer = &report.APIServer{FailedChecks: []string{"etcd"}}
			},
			want: map[report.Component]string{
				report.EtcdMember: "failed: no quorum: answers 1 of 3 members; does not reach etcd-b (timeout), etcd-c (no route to host)",
				report.KubeAPI:    "failed: not ready: failed checks of /readyz: etcd",
			},
		},
		"a member that reaches all others follows no leader yet": {
			change: func(r *report.Report) { r.Etcd.Quorum = false },
			want:   map[report.Component]string{report.EtcdMember: "failed: no quorum yet: reaches all 3 members, and follows no leader"},
		},
		"the database is full": {
			change: func(r *report.Report) { r.Etcd.DBSize, r.Etcd.Alarms = 8<<30, []string{"NOSPACE"} },
			want:   map[report.Component]string{report.EtcdMember: "failed: alarm NOSPACE: the database has 8.0 GiB of its quota of 8.0 GiB; etcd refuses all writes"},
		},
		"the database is almost full": {
			change: func(r *report.Report) { r.Etcd.DBSize = 7 << 30 },
			want:   map[report.Component]string{report.EtcdMember: "warning: the database has 7.0 GiB of its quota of 8.0 GiB; etcd refuses all writes when it is full"},
		},
		"a member catches up": {
			change: func(r *report.Report) { r.Etcd.Learner = true },
			want:   map[report.Component]string{report.EtcdMember: "warning: is a learner still catching up; it does not vote yet"},
		},
		"a disk fills, and another is full": {
			change: func(r *report.Report) {
				r.Disks[0].UsedBytes = 18 << 30
				r.Disks = append(r.Disks, report.Disk{Path: "/var/lib/slipway/etcd", UsedBytes: 20 << 30, SizeBytes: 20 << 30})
			},
			want: map[report.Component]string{report.DiskSpace: "failed: /var/lib/slipway/etcd is 100% full (20.0 GiB of 20.0 GiB)"},
		},
		"inodes run out": {
			change: func(r *report.Report) { r.Disks[0].InodesUsedPercent = 90 },
			want:   map[report.Component]string{report.DiskSpace: "warning: / has used 90% of its inodes"},
		},
		"a disk is read-only": {
			change: func(r *report.Report) { r.Disks[0].ReadOnly = true },
			want:   map[report.Component]string{report.DiskSpace: "failed: / is mounted read-only"},
		},
		"a CA expires soon": {
			change: func(r *report.Report) { r.Certificates[0].NotAfter = now.AddDate(0, 0, 29) },
			want:   map[report.Component]string{report.Certificates: "warning: CA certificate kubernetes-ca expires in 29 days, at 2026-12-20T12:00:00Z"},
		},
		"a certificate is not renewed": {
			change: func(r *report.Report) { r.Certificates[1].RenewAt = now.Add(-7 * time.Hour) },
			want: map[report.Component]string{report.Certificates: "warning: certificate apiserver was due for renewal at " +
				"2026-11-21T05:00:00Z and expires at 2026-11-23T21:00:00Z"},
		},
		"a certificate has expired": {
			change: func(r *report.Report) { r.Certificates[1].NotAfter = now.Add(-time.Hour) },
			want:   map[report.Component]string{report.Certificates: "failed: certificate apiserver expired at 2026-11-21T11:00:00Z"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := healthy()
			tt.change(&r)
			got := map[report.Component]string{}
			for _, c := range report.Evaluate(r) {
				if c.State == report.OK {
					continue
				}
				got[c.Component] = string(c.State) + ": " + c.Cause
				if c.Next == "" && c.Component != report.KubeAPI {
					t.Errorf("%s has no next step", c.Component)
				}
			}
			if tt.want == nil {
				tt.want = map[report.Component]string{}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSinceIsTheChangeOfState: another cause of the same state does not change how long it lasts.
func TestSinceIsTheChangeOfState(t *testing.T) {
	var b report.Board
	set := func(state report.State, cause string, at time.Duration) time.Duration {
		b.Set(report.Condition{Component: report.Kubelet, State: state, Cause: cause}, now.Add(at))
		return b.Conditions()[0].Since.Sub(now)
	}
	for i, step := range []struct {
		state report.State
		at    time.Duration
		want  time.Duration
	}{
		{report.OK, 0, 0},
		{report.OK, 5 * time.Second, 0},
		{report.Failed, 10 * time.Second, 10 * time.Second},
		{report.Failed, 15 * time.Second, 10 * time.Second},
		{report.OK, 20 * time.Second, 20 * time.Second},
	} {
		if got := set(step.state, string(rune('a'+i)), step.at); got != step.want {
			t.Errorf("step %d: since %s, want %s", i, got, step.want)
		}
	}
}

// TestConsoleLines: the newest complete line is read back, between other output, and a line stays short.
func TestConsoleLines(t *testing.T) {
	r := healthy()
	r.Etcd.Quorum = false
	r.Etcd.Peers[0].Error = strings.Repeat("x", 5000)
	r.Conditions = report.Evaluate(r)
	old, err := report.ConsoleLine(healthy())
	if err != nil {
		t.Fatal(err)
	}
	line, err := report.ConsoleLine(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(line) > 2048 {
		t.Errorf("a line of %d bytes", len(line))
	}
	text := "[ 1.0] kernel: hello\r\n" + string(old) + "[ 2.0] x " + strings.TrimSpace(string(line)) + "\r\nslipway-report: {\"machine\":\"cut"
	got, ok := report.ParseConsole([]byte(text))
	if !ok || got.Etcd == nil || got.Etcd.Quorum || len(got.Conditions) != 1 {
		t.Errorf("read back %+v, %v", got, ok)
	}
	if _, ok := report.ParseConsole([]byte("nothing here")); ok {
		t.Error("found a report where there is none")
	}
}

// TestConsoleGate: changes are written, repetitions are not, and a flapping machine cannot fill the console.
func TestConsoleGate(t *testing.T) {
	var g report.ConsoleGate
	r := healthy()
	if !g.Allow(r, now) || g.Allow(r, now.Add(5*time.Second)) {
		t.Error("the first report is written once")
	}
	r.Conditions = []report.Condition{{Component: report.Kubelet, State: report.Failed}}
	if !g.Allow(r, now.Add(10*time.Second)) {
		t.Error("a change is written at once")
	}
	if g.Allow(r, now.Add(time.Minute)) || !g.Allow(r, now.Add(11*time.Minute)) {
		t.Error("an unchanged report is repeated after ten minutes")
	}
	written := 0
	for i := range 3600 / 5 {
		r.Conditions = []report.Condition{{Component: report.Kubelet, State: report.Failed, Cause: strings.Repeat("x", i%2)}}
		if g.Allow(r, now.Add(time.Hour+time.Duration(i)*5*time.Second)) {
			written++
		}
	}
	if written < 100 || written > 140 {
		t.Errorf("%d lines in an hour, want about two each minute", written)
	}
}

func FuzzParseConsole(f *testing.F) {
	f.Add([]byte("slipway-report: {\"machine\":\"i-1\"}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := report.ParseConsole(b); ok && r.Machine == "" {
			t.Error("a report without a machine")
		}
	})
}
