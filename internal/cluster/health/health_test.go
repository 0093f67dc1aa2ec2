// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// good is a healthy cluster of one control-plane slot and one worker, with agents that publish no reports.
func good() health.Facts {
	return health.Facts{
		Now:    now,
		Groups: []health.Group{{Name: "control-plane", Slot: "a", Size: 1}, {Name: "workers", Size: 1}},
		Instances: []health.Instance{
			{ID: "i-1", Group: "control-plane", Slot: "a", State: "running", NodeName: "ip-1"},
			{ID: "i-2", Group: "workers", State: "running", NodeName: "ip-2"},
			{ID: "i-0", Group: "workers", State: "terminated", NodeName: "ip-0"},
		},
		Nodes:   []health.Node{{Name: "ip-1", Instance: "i-1", Ready: true}, {Name: "ip-2", Instance: "i-2", Ready: true}},
		Members: []health.Member{{Slot: "a", Healthy: true, ReportedAt: now}},
		Pods: []health.Pod{
			{Namespace: "kube-system", Name: "coredns-1", Node: "ip-2", Running: true},
			{Namespace: "kube-system", Name: "kube-apiserver-ip-1", Node: "ip-1", Running: true},
			{Namespace: "kube-system", Name: "kube-controller-manager-ip-1", Node: "ip-1", Running: true},
			{Namespace: "kube-system", Name: "kube-scheduler-ip-1", Node: "ip-1", Running: true},
		},
	}
}

// problems returns the checks that are not OK, each as "severity kind name: cause".
func problems(r health.Report) []string {
	out := []string{}
	for _, c := range r.Checks {
		if c.Severity != health.OK {
			out = append(out, string(c.Severity)+" "+c.Kind+" "+c.Name+": "+c.Cause)
		}
	}
	return out
}

func TestEvaluate(t *testing.T) {
	tests := map[string]struct {
		change func(*health.Facts)
		want   []string
	}{
		"everything works": {change: func(*health.Facts) {}},
		"a machine is missing, and the group says why": {
			change: func(f *health.Facts) {
				f.Instances, f.Nodes, f.Pods, f.Groups[1].ScalingFailure = f.Instances[:1], f.Nodes[:1], f.Pods[1:], "no capacity for t3.large in us-east-1a"
			},
			want: []string{"failed group workers: 0 of 1 machines are running; the last scaling activity failed: no capacity for t3.large in us-east-1a"},
		},
		"a machine that failed to boot names the stage and the error": {
			change: func(f *health.Facts) {
				f.Nodes = f.Nodes[:1]
				f.Instances[1].Reports = []health.StageReport{{Stage: "fetch", State: "done"}, {Stage: "verify", State: "failed", Error: "kubelet: want sha256 aa, got bb", Hint: "check the mirror"}}
			},
			want: []string{
				"failed machine i-2 (workers): stage verify failed: kubelet: want sha256 aa, got bb",
				"failed node ip-2: machine i-2 has not joined; stage verify failed: kubelet: want sha256 aa, got bb",
			},
		},
		"the API does not answer": {
			change: func(f *health.Facts) { f.APIError = "dial tcp 127.77.0.1:443: connection refused" },
			want:   []string{"critical api kube-apiserver: connect to 127.77.0.1:443: connection refused"},
		},
		"the machine of a member without reports has gone silent": {
			change: func(f *health.Facts) { f.Members[0].ReportedAt = now.Add(-time.Minute) },
			want: []string{
				"critical etcd quorum: quorum lost: 1 of 1 members do not work: etcd-a (its machine has not reported for 60s)",
				"failed etcd etcd-a: its machine has not reported for 60s",
			},
		},
		"a member without reports is a learner": {
			change: func(f *health.Facts) {
				f.Groups = append(f.Groups, health.Group{Name: "control-plane", Slot: "b", Size: 0}, health.Group{Name: "control-plane", Slot: "c", Size: 0})
				f.Members[0].Learner = true
			},
			want: []string{
				"critical etcd quorum: quorum lost: 3 of 3 members do not work: etcd-a (is a learner still catching up), etcd-b (its machine is not running), etcd-c (its machine is not running)",
				"failed etcd etcd-a: is a learner still catching up",
				"failed etcd etcd-b: its machine is not running",
				"failed etcd etcd-c: its machine is not running",
			},
		},
		"a node without a machine": {
			change: func(f *health.Facts) {
				f.Nodes = append(f.Nodes, health.Node{Name: "ip-0", Instance: "i-0", Ready: true})
			},
			want: []string{"failed node ip-0: its machine i-0 is not running"},
		},
		"a node is not ready": {
			change: func(f *health.Facts) { f.Nodes[1].Ready, f.Nodes[1].Reason = false, "cni plugin not initialized" },
			want:   []string{"failed node ip-2: not ready: cni plugin not initialized"},
		},
		"a node that nobody initializes": {
			change: func(f *health.Facts) { f.Nodes[1].Uninitialized = true },
			want:   []string{"failed node ip-2: not ready: the cloud controller manager has not initialized it, so no pods are scheduled there"},
		},
		"a node is not ready, and not initialized": {
			change: func(f *health.Facts) {
				f.Nodes[1].Ready, f.Nodes[1].Reason, f.Nodes[1].Uninitialized = false, "cni plugin not initialized", true
			},
			want: []string{"failed node ip-2: not ready: cni plugin not initialized"},
		},
		"a lease is old, and the node is still Ready": {
			change: func(f *health.Facts) { f.Nodes[1].LeaseRenewed = now.Add(-16 * time.Second) },
			want:   []string{"failed node ip-2: its kubelet has not reported for 16s: it has stopped, or the machine hangs or is cut off from the API"},
		},
		"a lease is as old as usual": {
			change: func(f *health.Facts) { f.Nodes[1].LeaseRenewed = now.Add(-11 * time.Second) },
		},
		"a pod of the control plane is missing": {
			change: func(f *health.Facts) { f.Pods = f.Pods[:3] },
			want:   []string{"failed pod kube-system/kube-scheduler-ip-1: the kubelet runs no such pod: it has not registered it yet, or its manifest is missing or not valid"},
		},
		"a stopped machine explains what was on it": {
			change: func(f *health.Facts) { f.Instances[0].State = "shutting-down" },
			want: []string{
				"critical etcd quorum: quorum lost: 1 of 1 members do not work: etcd-a (its machine i-1 is shutting-down)",
				"failed group control-plane-a: 0 of 1 machines are running; i-1 is shutting-down",
				"failed etcd etcd-a: its machine i-1 is shutting-down",
				"failed node ip-1: its machine i-1 is not running",
				"failed pod kube-system/kube-apiserver-ip-1: its machine is not running",
				"failed pod kube-system/kube-controller-manager-ip-1: its machine is not running",
				"failed pod kube-system/kube-scheduler-ip-1: its machine is not running",
			},
		},
		"pods of a node that is gone count for nothing": {
			change: func(f *health.Facts) {
				f.Pods = append(f.Pods, health.Pod{Namespace: "kube-system", Name: "kube-proxy-0", Node: "ip-0", Reason: "not Ready"})
			},
		},
		"a pod is not running": {
			change: func(f *health.Facts) { f.Pods[0].Running, f.Pods[0].Reason = false, "ImagePullBackOff" },
			want:   []string{"failed pod kube-system/coredns-1: ImagePullBackOff"},
		},
		"a target that leaves is not missed": {
			change: func(f *health.Facts) {
				f.Targets = []health.Target{{Group: "demo-api", Instance: "i-0", State: "draining"}, {Group: "demo-api", Instance: "i-1", State: "healthy"}}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := good()
			tt.change(&f)
			r := health.Evaluate(f)
			if tt.want == nil {
				tt.want = []string{}
			}
			if diff := cmp.Diff(tt.want, problems(r)); diff != "" {
				t.Errorf("checks that are not OK (-want +got):\n%s", diff)
			}
			if r.Valid != (len(tt.want) == 0) {
				t.Errorf("Valid = %v", r.Valid)
			}
		})
	}
}

func TestParseConsole(t *testing.T) {
	out := "[  1.0] kernel: hello\r\nslipway-node: {\"stage\":\"fetch\",\"state\":\"done\"}\r\n[ OK ] systemd slipway-node: {\"stage\":\"start\",\"state\":\"failed\",\"error\":\"no disk\"}\nslipway-node: {\"stage\":\"cut"
	want := []health.StageReport{{Stage: "fetch", State: "done"}, {Stage: "start", State: "failed", Error: "no disk"}}
	if diff := cmp.Diff(want, health.ParseConsole([]byte(out))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParseConsole(f *testing.F) {
	f.Add([]byte("slipway-node: {\"stage\":\"fetch\"}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, r := range health.ParseConsole(b) {
			if r.Stage == "" {
				t.Error("a report without a stage")
			}
		}
	})
}

// TestOrder: the most severe first, and causes before what they explain.
func TestOrder(t *testing.T) {
	f := healthyCluster()
	f.Nodes[3].Ready, f.Nodes[3].Reason = false, "x"
	f.Nodes[4].Pressure = []string{"DiskPressure"}
	f.Instances[0].State = "terminated"
	var severities []string
	explained := false
	for _, c := range health.Evaluate(f).Checks {
		severities = append(severities, string(c.Severity))
		if c.Severity != health.Failed {
			continue
		}
		if explained && c.CausedBy == "" {
			t.Errorf("%s %s comes after what others explain", c.Kind, c.Name)
		}
		explained = explained || c.CausedBy != ""
	}
	if got := slices.Compact(severities); !slices.Equal(got, []string{"failed", "warning", "ok"}) || !explained {
		t.Errorf("order of severities: %v, explained %v", got, explained)
	}
}
