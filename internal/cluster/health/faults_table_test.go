// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// fault is one fault of a cluster that was healthy before.
type fault struct {
	name    string
	happens string // for operators
	todo    string // who does what
	change  func(*health.Facts)
	want    []string // the checks that are not OK, most severe first
}

const (
	refused = "connect: connection refused"
	timeout = "context deadline exceeded"
)

// faults is the table of faults, by what they concern: machines, etcd, API, nodes and pods, certificates.
func faults() []fault {
	var out []fault
	out = append(out, machineFaults()...)
	out = append(out, serviceFaults()...)
	out = append(out, etcdFaults()...)
	out = append(out, databaseFaults()...)
	out = append(out, quorumFaults()...)
	out = append(out, apiFaults()...)
	out = append(out, podFaults()...)
	return append(out, certificateFaults()...)
}

func machineFaults() []fault {
	return []fault{
		{
			name:    "A control-plane machine is terminated",
			happens: "EC2 terminates the machine, by itself or because somebody asked for it. Its volume stays. The API answers through the others.",
			todo: "Nobody has to do anything: the slot's auto scaling group launches a machine, which attaches the volume and continues with\n" +
				"its data. Do not replace another machine meanwhile.",
			change: func(f *health.Facts) {
				f.Instances[0].State = "terminated"
				delete(f.Reports, f.Instances[0].ID)
				f.Nodes, f.Targets, f.Pods = f.Nodes[1:], f.Targets[1:], f.Pods[4:]
				peerMissed(f, 0, "dial tcp 10.80.0.1:2379: i/o timeout")
			},
			want: []string{
				"failed group control-plane-a: 0 of 1 machines are running",
				"failed etcd etcd-a: its machine is not running",
				"warning etcd quorum: no other member may fail: 2 of 3 work",
			},
		},
		{
			name:    "A machine is stopped",
			happens: "Somebody has stopped a worker. Its pods start elsewhere after Kubernetes' eviction time of five minutes.",
			todo:    "Nobody: the auto scaling group terminates the stopped machine and launches another.",
			change: func(f *health.Facts) {
				f.Instances[3].State, f.Instances[3].Why = "stopped", "User initiated (2026-11-21 11:59:40 GMT)"
			},
			want: []string{
				"failed group workers: 1 of 2 machines are running; i-0c4e4 is stopped (User initiated (2026-11-21 11:59:40 GMT))",
				"failed node ip-10-80-0-4: its machine i-0c4e4 is not running",
				"failed pod kube-system/coredns-7c9f: its machine is not running",
				"failed pod kube-system/kube-proxy-ip-10-80-0-4: its machine is not running",
			},
		},
		{
			name:    "A machine cannot be replaced",
			happens: "A worker is gone, and AWS has no capacity for another one of its type.",
			todo:    "The operator adds other machine types or zones to the group (`slipway edit`), or waits: AWS tries again.",
			change: func(f *health.Facts) {
				f.Instances[4].State = "terminated"
				delete(f.Reports, f.Instances[4].ID)
				f.Nodes = f.Nodes[:4]
				f.Groups[3].ScalingFailure = "We currently do not have sufficient t3.large capacity in the Availability Zone you requested (us-east-1b)."
			},
			want: []string{
				"failed group workers: 1 of 2 machines are running; the last scaling activity failed: We currently do not have sufficient t3.large capacity in the Availability Zone you requested (us-east-1b).",
			},
		},
		{
			name:    "A download has another hash",
			happens: "A new machine rejects a program whose hash is not that of the catalogue. It does not start it.",
			todo: "The operator finds out whether the catalogue or the mirror is wrong, corrects it and applies. The machine tries again by\n" +
				"itself.",
			change: func(f *health.Facts) {
				f.Instances[4].Reports = []health.StageReport{{
					Stage: "verify", State: "failed", Error: "kubelet from https://dl.k8s.io/…/kubelet has sha256 48de8de7…, want 0f0f0f0f…",
					Hint: "check the asset catalogue and the mirror, then run slipway apply",
				}}
				delete(f.Reports, f.Instances[4].ID)
				f.Nodes = f.Nodes[:4]
				f.Pods = f.Pods[:len(f.Pods)-2]
			},
			want: []string{
				"failed machine i-0c4e5 (workers): stage verify failed: kubelet from https://dl.k8s.io/…/kubelet has sha256 48de8de7…, want 0f0f0f0f…",
				"failed node ip-10-80-0-5: machine i-0c4e5 has not joined; stage verify failed: kubelet from https://dl.k8s.io/…/kubelet has sha256 48de8de7…, want 0f0f0f0f…",
			},
		},
		{
			name:    "A machine does not boot",
			happens: "A machine runs for EC2, and no line of the agent is on its console.",
			todo:    "The operator reads the console: the image does not run user data, or the route from its subnet to S3 is missing.",
			change: func(f *health.Facts) {
				delete(f.Reports, f.Instances[4].ID)
				f.Nodes = f.Nodes[:4]
			},
			want: []string{
				"failed node ip-10-80-0-5: machine i-0c4e5 has not joined and has sent no reports yet",
			},
		},
		{
			name:    "A worker is cut off from the network",
			happens: "A route, a network ACL or a security group rule is gone, or the machine hangs. Kubernetes still says Ready for 40 s.",
			todo:    "The operator restores the network (`slipway drift` finds changed rules), or terminates the machine.",
			change:  func(f *health.Facts) { silent(f, 3, 19*time.Second) },
			want: []string{
				"failed node ip-10-80-0-4: its kubelet has not reported for 19s: it has stopped, or the machine hangs or is cut off from the API",
			},
		},
		{
			name:    "A control-plane machine is cut off from the network",
			happens: "Nothing reaches the machine, and it reaches nothing. Its serial console still works: the agent reports there.",
			todo:    "The operator restores the network (`slipway drift`), or terminates the machine: the next one attaches its volume and continues with its data.",
			change: func(f *health.Facts) {
				measured(f, 1, func(r *report.Report) {
					r.Etcd.Quorum = false
					r.Etcd.Peers = []report.Peer{{Slot: "a", Error: "i/o timeout"}, {Slot: "c", Error: "i/o timeout"}}
					r.APIServer = &report.APIServer{FailedChecks: []string{"etcd"}}
				})
				onConsole(f, 1)
				f.Nodes[1].LeaseRenewed = now.Add(-17 * time.Second)
				f.Targets[1].State, f.Targets[1].Description = "unhealthy", "Health checks failed"
				peerMissed(f, 1, "dial tcp 10.80.0.2:2379: i/o timeout")
			},
			want: []string{
				"failed machine i-0c4e2 (control-plane-b): is cut off: its agent does not reach the API and reports on its console; its kubelet has not reported for 17s",
				"failed etcd etcd-b: is cut off from the other members: no quorum: answers 1 of 3 members; does not reach etcd-a (i/o timeout), etcd-c (i/o timeout)",
				"failed api kube-apiserver of i-0c4e2 (control-plane-b): not ready: failed checks of /readyz: etcd",
				"failed target demo-api i-0c4e2 (control-plane-b): the load balancer sends it no requests: unhealthy: Health checks failed",
				"failed node ip-10-80-0-2: its kubelet has not reported for 17s: it has stopped, or the machine hangs or is cut off from the API",
				"warning etcd quorum: no other member may fail: 2 of 3 work",
			},
		},
	}
}

func serviceFaults() []fault {
	return []fault{
		{
			name:    "The kubelet is stopped",
			happens: "Running containers continue, and nothing new starts. Kubernetes notices it after 40 s.",
			todo:    "Nobody at first: the agent starts it. If it stops again, the operator reads its journal, or terminates the machine.",
			change: func(f *health.Facts) {
				measured(f, 3, func(r *report.Report) {
					r.Kubelet = report.Service{Unit: "inactive", Error: "get http://127.0.0.1:10248/healthz: " + refused}
				})
			},
			want: []string{
				"failed machine i-0c4e4 (workers): systemd unit kubelet is inactive",
			},
		},
		{
			name:    "The kubelet hangs",
			happens: "systemd sees a running process. It answers no health check and does not renew its lease.",
			todo:    "The operator restarts it, or terminates the machine.",
			change: func(f *health.Facts) {
				measured(f, 3, func(r *report.Report) { r.Kubelet.Error = "get http://127.0.0.1:10248/healthz: " + timeout })
				f.Nodes[3].LeaseRenewed = now.Add(-21 * time.Second)
			},
			want: []string{
				"failed machine i-0c4e4 (workers): kubelet does not answer: get http://127.0.0.1:10248/healthz: no answer in time",
				"failed node ip-10-80-0-4: its kubelet has not reported for 21s: it has stopped, or the machine hangs or is cut off from the API",
			},
		},
		{
			name:    "The container runtime is stopped",
			happens: "Running containers continue. The kubelet cannot start or check any.",
			todo:    "Nobody at first: the agent starts it. If it stops again, the operator reads its journal, or terminates the machine.",
			change: func(f *health.Facts) {
				measured(f, 4, func(r *report.Report) { r.Containerd.Unit = "failed" })
				f.Nodes[4].Ready, f.Nodes[4].Reason = false, "[container runtime is down, PLEG is not healthy]"
			},
			want: []string{
				"failed machine i-0c4e5 (workers): systemd unit containerd is failed",
				"failed node ip-10-80-0-5: not ready: [container runtime is down, PLEG is not healthy]",
			},
		},
		{
			name:    "The agent is stopped",
			happens: "The machine works. Its certificates are not renewed any more, and nothing on it is restored.",
			todo:    "The operator starts it. systemd restarts an agent that crashes, so somebody has stopped it.",
			change: func(f *health.Facts) {
				r := f.Reports[f.Instances[2].ID]
				r.PublishedAt = now.Add(-40 * time.Second)
				f.Reports[f.Instances[2].ID] = r
			},
			want: []string{
				"failed machine i-0c4e3 (control-plane-c): its agent has not reported for 40s; the kubelet still does",
			},
		},
		{
			name:    "The agent of a worker is stopped",
			happens: "The machine works. Its certificates are not renewed any more, and nothing on it is restored.",
			todo:    "The operator starts it. systemd restarts an agent that crashes, so somebody has stopped it.",
			change:  func(f *health.Facts) { heartbeats(f, 4, 21, 7200) },
			want: []string{
				"failed machine i-0c4e5 (workers): its agent has not reported for 21s; the kubelet still does",
			},
		},
		{
			name:    "A worker's disk is full",
			happens: "The kubelet evicts pods at 90%. Logs and image layers cannot be written at 100%.",
			todo:    "The operator finds what fills it, or gives the group larger volumes (`rootVolume` of the instance group) and applies.",
			change: func(f *health.Facts) {
				measured(f, 3, func(r *report.Report) { r.Disks[0].UsedBytes = 39 << 29 })
				f.Nodes[3].Pressure = []string{"DiskPressure: kubelet has disk pressure"}
			},
			want: []string{
				"failed machine i-0c4e4 (workers): disk: / is 97% full (19.5 GiB of 20.0 GiB)",
				"warning node ip-10-80-0-4: DiskPressure: kubelet has disk pressure",
			},
		},
		{
			name:    "A disk is read-only",
			happens: "Linux mounts a file system read-only after an error of its volume.",
			todo:    "The operator terminates the machine; a worker loses nothing, a member gets its data from its volume or the others.",
			change: func(f *health.Facts) {
				measured(f, 4, func(r *report.Report) { r.Disks[0].ReadOnly = true })
			},
			want: []string{
				"failed machine i-0c4e5 (workers): disk: / is mounted read-only",
			},
		},
		{
			name:    "A static pod manifest is corrupted",
			happens: "Somebody has broken or changed a file, a unit or a kernel setting that the agent owns. It restores them within 15 s.",
			todo:    "Nobody, if it was a mistake. Change the manifest and apply to change it for good.",
			change: func(f *health.Facts) {
				addCondition(f, 0, report.Condition{
					Component: report.OwnedFiles, State: report.Warning,
					Cause: "/etc/kubernetes/manifests/kube-scheduler.yaml was changed; restored at 11:59:52",
					Next:  "nothing if the change was a mistake; to change it for good, change the manifest and run slipway apply",
				})
			},
			want: []string{
				"warning machine i-0c4e1 (control-plane-a): changed outside of slipway: /etc/kubernetes/manifests/kube-scheduler.yaml was changed; restored at 11:59:52",
			},
		},
		{
			name:    "A file of the agent cannot be restored",
			happens: "The file system does not take the file, for example because it is read-only. What needs the file may not start.",
			todo:    "The operator fixes what the message names, or terminates the machine.",
			change: func(f *health.Facts) {
				addCondition(f, 0, report.Condition{
					Component: report.OwnedFiles, State: report.Failed,
					Cause: "/etc/kubernetes/manifests/kube-apiserver.yaml was deleted and cannot be restored: write /etc/kubernetes/manifests/kube-apiserver.yaml: read-only file system",
					Next:  "fix what the message names, or terminate the machine: its group replaces it",
				})
				measured(f, 0, func(r *report.Report) { r.Disks[0].ReadOnly = true })
			},
			want: []string{
				"failed machine i-0c4e1 (control-plane-a): disk: / is mounted read-only",
				"failed machine i-0c4e1 (control-plane-a): changed outside of slipway: /etc/kubernetes/manifests/kube-apiserver.yaml was deleted and cannot be restored: write /etc/kubernetes/manifests/kube-apiserver.yaml: read-only file system",
			},
		},
	}
}

func etcdFaults() []fault {
	return []fault{
		{
			name:    "The leader of etcd is stopped",
			happens: "The others elect a leader within two seconds. The API server of the machine fails with its member; the others answer.",
			todo:    "The operator starts it. Until then no other member may fail.",
			change: func(f *health.Facts) {
				measured(f, 0, func(r *report.Report) {
					r.Etcd = &report.Etcd{Error: "reach etcd at https://127.0.0.1:2379: dial tcp 127.0.0.1:2379: " + refused}
					r.APIServer = &report.APIServer{FailedChecks: []string{"etcd"}}
				})
				peerMissed(f, 0, "dial tcp 10.80.0.1:2379: "+refused)
				f.Targets[0].State, f.Targets[0].Description = "unhealthy", "Health checks failed"
			},
			want: []string{
				"failed etcd etcd-a: etcd does not answer: reach etcd at https://127.0.0.1:2379: connect to 127.0.0.1:2379: connection refused",
				"failed api kube-apiserver of i-0c4e1 (control-plane-a): not ready: failed checks of /readyz: etcd",
				"failed target demo-api i-0c4e1 (control-plane-a): the load balancer sends it no requests: unhealthy: Health checks failed",
				"warning etcd quorum: no other member may fail: 2 of 3 work",
			},
		},
		{
			name:    "The leader of etcd hangs",
			happens: "The process exists and answers nothing, for example because its disk does not answer. The others elect a leader.",
			todo:    "The operator restarts it, or terminates the machine if its volume hangs.",
			change: func(f *health.Facts) {
				measured(f, 0, func(r *report.Report) {
					r.Etcd = &report.Etcd{Error: "get etcd status from https://127.0.0.1:2379: " + timeout}
					r.APIServer = &report.APIServer{Error: timeout}
				})
				peerMissed(f, 0, "get etcd status from https://etcd-a.demo.internal:2379: "+timeout)
				onConsole(f, 0) // its API server takes no report
				f.Nodes[0].LeaseRenewed = now.Add(-18 * time.Second)
			},
			want: []string{
				"failed etcd etcd-a: etcd does not answer: get etcd status from https://127.0.0.1:2379: no answer in time",
				"failed api kube-apiserver of i-0c4e1 (control-plane-a): kube-apiserver does not answer: no answer in time",
				"failed node ip-10-80-0-1: its kubelet has not reported for 18s: it has stopped, or the machine hangs or is cut off from the API",
				"warning etcd quorum: no other member may fail: 2 of 3 work",
			},
		},
		{
			name:    "A member does not reach the others",
			happens: "Ports 2379 and 2380 between control-plane machines are closed for one of them. Everything else works.",
			todo:    "The operator restores the rules: `slipway drift demo`, then `slipway apply demo`.",
			change: func(f *health.Facts) {
				measured(f, 2, func(r *report.Report) {
					r.Etcd.Quorum, r.Etcd.LeaderID = false, ""
					r.Etcd.Peers = []report.Peer{{Slot: "a", Error: "i/o timeout"}, {Slot: "b", Error: "i/o timeout"}}
					r.APIServer = &report.APIServer{FailedChecks: []string{"etcd"}}
				})
				peerMissed(f, 2, "i/o timeout")
			},
			want: []string{
				"failed etcd etcd-c: is cut off from the other members: no quorum: answers 1 of 3 members; does not reach etcd-a (i/o timeout), etcd-b (i/o timeout)",
				"failed api kube-apiserver of i-0c4e3 (control-plane-c): not ready: failed checks of /readyz: etcd",
				"warning etcd quorum: no other member may fail: 2 of 3 work",
			},
		},
		{
			name:    "etcd's disk is full",
			happens: "Something else than the database, which has a quota, fills the volume. The member gives up leadership before writes fail.",
			todo:    "The operator sets a larger `etcd.volume.size` and applies, or removes what does not belong there.",
			change: func(f *health.Facts) {
				addCondition(f, 1, report.Condition{
					Component: report.EtcdVolume, State: report.Failed,
					Cause: "the etcd volume vol-0d9e2 is full: 1 MiB are left, and etcd needs 64 MiB for its write-ahead log",
					Next:  "set a larger volume in the manifest and run slipway apply, or delete files of others in /var/lib/slipway/etcd",
				})
				measured(f, 1, func(r *report.Report) { r.Disks[1].UsedBytes = 20 << 30 })
			},
			want: []string{
				"failed machine i-0c4e2 (control-plane-b): the etcd volume vol-0d9e2 is full: 1 MiB are left, and etcd needs 64 MiB for its write-ahead log",
			},
		},
		{
			name:    "etcd's volume is lost",
			happens: "The volume was detached by force or has failed. The agent stops the member, so that another one leads.",
			todo: "The operator attaches the volume again, or terminates the machine: the next one attaches it. If the volume does not exist any\n" +
				"more, `slipway apply` says what is left of the quorum.",
			change: func(f *health.Facts) {
				addCondition(f, 1, report.Condition{
					Component: report.EtcdVolume, State: report.Failed,
					Cause: "the etcd volume vol-0d9e2 is read-only: Linux does this after an error of the device, as when the volume was detached",
					Next:  "terminate the machine: its replacement attaches vol-0d9e2; or attach it to this machine again: the agent mounts it and starts etcd",
				})
				measured(f, 1, func(r *report.Report) {
					r.Disks[1].ReadOnly = true
					r.Etcd = &report.Etcd{Error: "reach etcd at https://127.0.0.1:2379: dial tcp 127.0.0.1:2379: " + refused}
				})
				peerMissed(f, 1, "dial tcp 10.80.0.2:2379: "+refused)
			},
			want: []string{
				"failed machine i-0c4e2 (control-plane-b): the etcd volume vol-0d9e2 is read-only: Linux does this after an error of the device, as when the volume was detached",
				"failed etcd etcd-b: etcd does not answer: reach etcd at https://127.0.0.1:2379: connect to 127.0.0.1:2379: connection refused",
				"warning etcd quorum: no other member may fail: 2 of 3 work",
			},
		},
	}
}
