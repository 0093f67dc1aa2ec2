// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// good is a healthy cluster of one control-plane slot and one worker.
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

func TestJudge(t *testing.T) {
	tests := map[string]struct {
		change func(*health.Facts)
		want   []health.Check // those that are not OK
	}{
		"all well": {change: func(*health.Facts) {}},
		"a machine is missing, and the group says why": {
			change: func(f *health.Facts) {
				f.Instances, f.Nodes, f.Pods, f.Groups[1].ScalingFailure = f.Instances[:1], f.Nodes[:1], f.Pods[1:], "no capacity for t3.large in us-east-1a"
			},
			want: []health.Check{{Kind: "machine", Name: "workers", Cause: "0 of 1 machines are running; the last scaling activity failed: no capacity for t3.large in us-east-1a"}},
		},
		"a machine that failed to boot names the stage and the error": {
			change: func(f *health.Facts) {
				f.Nodes = f.Nodes[:1]
				f.Instances[1].Reports = []health.StageReport{{Stage: "fetch", State: "done"}, {Stage: "verify", State: "failed", Error: "kubelet: want sha256 aa, got bb", Hint: "check the mirror"}}
			},
			want: []health.Check{
				{Kind: "machine", Name: "i-2", Cause: "stage verify failed: kubelet: want sha256 aa, got bb", Hint: "check the mirror"},
				{Kind: "node", Name: "ip-2", Cause: "machine i-2 has not joined; stage verify failed: kubelet: want sha256 aa, got bb", Hint: "check the mirror"},
			},
		},
		"the API does not answer": {
			change: func(f *health.Facts) { f.APIError = "dial tcp 127.77.0.1:443: connection refused" },
			want:   []health.Check{{Kind: "api", Name: "kube-apiserver", Cause: "dial tcp 127.77.0.1:443: connection refused"}},
		},
		"a member has gone silent": {
			change: func(f *health.Facts) { f.Members[0].ReportedAt = now.Add(-time.Minute) },
			want:   []health.Check{{Kind: "etcd", Name: "etcd-a", Cause: "last reported 1m0s ago"}},
		},
		"a member never reported": {
			change: func(f *health.Facts) { f.Members = nil },
			want:   []health.Check{{Kind: "etcd", Name: "etcd-a", Cause: "has not reported yet"}},
		},
		"a member is a learner": {
			change: func(f *health.Facts) { f.Members[0].Learner = true },
			want:   []health.Check{{Kind: "etcd", Name: "etcd-a", Cause: "is a learner still catching up"}},
		},
		"a node without a machine": {
			change: func(f *health.Facts) {
				f.Nodes = append(f.Nodes, health.Node{Name: "ip-0", Instance: "i-0", Ready: true})
			},
			want: []health.Check{{Kind: "node", Name: "ip-0", Cause: "its machine i-0 is not running"}},
		},
		"a node is not ready": {
			change: func(f *health.Facts) { f.Nodes[1].Ready, f.Nodes[1].Reason = false, "cni plugin not initialized" },
			want:   []health.Check{{Kind: "node", Name: "ip-2", Cause: "not ready: cni plugin not initialized"}},
		},
		"a pod of the control plane is missing": {
			change: func(f *health.Facts) { f.Pods = f.Pods[:3] },
			want:   []health.Check{{Kind: "pod", Name: "kube-system/kube-scheduler-ip-1", Cause: "the kubelet has not registered it with the API yet"}},
		},
		"a stopped machine fails every check": {
			change: func(f *health.Facts) { f.Instances[0].State = "shutting-down" },
			want: []health.Check{
				{Kind: "machine", Name: "control-plane-a", Cause: "0 of 1 machines are running"},
				{Kind: "etcd", Name: "etcd-a", Cause: "its machine is not running"},
				{Kind: "node", Name: "ip-1", Cause: "its machine i-1 is not running"},
				{Kind: "pod", Name: "kube-system/kube-apiserver-ip-1", Cause: "its machine is not running"},
				{Kind: "pod", Name: "kube-system/kube-controller-manager-ip-1", Cause: "its machine is not running"},
				{Kind: "pod", Name: "kube-system/kube-scheduler-ip-1", Cause: "its machine is not running"},
			},
		},
		"pods of a node that is gone count for nothing": {
			change: func(f *health.Facts) {
				f.Pods = append(f.Pods, health.Pod{Namespace: "kube-system", Name: "kube-proxy-0", Node: "ip-0", Reason: "phase Running"})
			},
		},
		"a pod is not running": {
			change: func(f *health.Facts) { f.Pods[0].Running, f.Pods[0].Reason = false, "ImagePullBackOff" },
			want:   []health.Check{{Kind: "pod", Name: "kube-system/coredns-1", Cause: "ImagePullBackOff"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := good()
			tt.change(&f)
			r := health.Evaluate(f)
			var bad []health.Check
			for _, c := range r.Checks {
				if !c.OK {
					bad = append(bad, c)
				}
			}
			if diff := cmp.Diff(tt.want, bad); diff != "" {
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
