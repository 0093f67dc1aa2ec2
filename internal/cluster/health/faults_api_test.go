// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

func quorumFaults() []fault {
	return []fault{
		{
			name:    "Two of three control-plane machines are gone",
			happens: "etcd has no quorum: nothing can be read or written through the API. Pods continue to run.",
			todo:    "Nobody, if the volumes exist: the groups launch machines, which attach them. Never delete a volume now.",
			change:  loseTwoMachines,
			want: []string{
				"critical etcd quorum: quorum lost: 2 of 3 members do not work: etcd-b (its machine is not running), etcd-c (its machine i-0c4e3 is shutting-down)",
				"critical api kube-apiserver: https://demo-api.example.com:443 does not answer: no answer in time",
				"failed group control-plane-b: 0 of 1 machines are running",
				"failed group control-plane-c: 0 of 1 machines are running; i-0c4e3 is shutting-down",
				"failed etcd etcd-b: its machine is not running",
				"failed etcd etcd-c: its machine i-0c4e3 is shutting-down",
				"failed api kube-apiserver of i-0c4e1 (control-plane-a): not ready: failed checks of /readyz: etcd",
				"failed target demo-api i-0c4e1 (control-plane-a): the load balancer sends it no requests: unhealthy: Health checks failed",
				"warning etcd etcd-a: runs without a quorum",
			},
		},
		{
			name: "The volumes of a majority are lost",
			happens: "Two of three machines are gone, and their volumes were deleted. The member that is left can never have a quorum again. " +
				"Here spec.etcd.quorumLoss.recovery is Automatic.",
			todo: "The machines recover etcd when the quorum has been missing for the configured time, and create the lost volumes. With " +
				"recovery: Manual, the operator creates the volumes, with slipway apply --recreate-lost-volumes, and then restores a backup: " +
				"slipway etcd restore.",
			change: func(f *health.Facts) {
				loseTwoMachines(f)
				f.Recovery = &health.Recovery{Waiting: []health.QuorumLoss{{
					Slot:       "a",
					LostData:   true,
					Reason:     "the data of 2 of 3 members is lost (b, c)",
					LostAt:     now.Add(-2 * time.Minute),
					ReportedAt: now,
					DueAt:      now.Add(8 * time.Minute),
				}}}
			},
			want: []string{
				"critical etcd quorum: quorum lost: 2 of 3 members do not work: etcd-b (its machine is not running), etcd-c (its machine i-0c4e3 is shutting-down)",
				"critical etcd recovery: no quorum for 2m: the data of 2 of 3 members is lost (b, c)",
				"critical api kube-apiserver: https://demo-api.example.com:443 does not answer: no answer in time",
				"failed group control-plane-b: 0 of 1 machines are running",
				"failed group control-plane-c: 0 of 1 machines are running; i-0c4e3 is shutting-down",
				"failed etcd etcd-b: its machine is not running",
				"failed etcd etcd-c: its machine i-0c4e3 is shutting-down",
				"failed api kube-apiserver of i-0c4e1 (control-plane-a): not ready: failed checks of /readyz: etcd",
				"failed target demo-api i-0c4e1 (control-plane-a): the load balancer sends it no requests: unhealthy: Health checks failed",
				"warning etcd etcd-a: runs without a quorum",
			},
		},
		{
			name:    "Two of three members are stopped",
			happens: "All machines run, and etcd runs on one of them only. The agents report on the serial consoles.",
			todo:    "Agents start members that ended. One that hangs is restarted by the operator (`systemctl restart etcd`), or its machine terminated: the quorum returns with one of them.",
			change: func(f *health.Facts) {
				for n := range 3 {
					measured(f, n, func(r *report.Report) {
						r.APIServer = &report.APIServer{FailedChecks: []string{"etcd"}}
						if n > 0 {
							r.Etcd = &report.Etcd{Error: "reach etcd at https://127.0.0.1:2379: dial tcp 127.0.0.1:2379: " + refused}
							return
						}
						r.Etcd.Quorum, r.Etcd.LeaderID = false, ""
						r.Etcd.Peers = []report.Peer{{Slot: "b", Error: refused}, {Slot: "c", Error: refused}}
					})
				}
				withoutAPI(f, "https://demo-api.example.com:443 does not answer: "+timeout)
			},
			want: []string{
				"critical etcd quorum: quorum lost: 2 of 3 members do not work: etcd-b (etcd does not answer), etcd-c (etcd does not answer)",
				"critical api kube-apiserver: https://demo-api.example.com:443 does not answer: no answer in time",
				"failed etcd etcd-b: etcd does not answer: reach etcd at https://127.0.0.1:2379: connect to 127.0.0.1:2379: connection refused",
				"failed etcd etcd-c: etcd does not answer: reach etcd at https://127.0.0.1:2379: connect to 127.0.0.1:2379: connection refused",
				"failed api kube-apiserver of i-0c4e1 (control-plane-a): not ready: failed checks of /readyz: etcd",
				"failed api kube-apiserver of i-0c4e2 (control-plane-b): not ready: failed checks of /readyz: etcd",
				"failed api kube-apiserver of i-0c4e3 (control-plane-c): not ready: failed checks of /readyz: etcd",
				"warning etcd etcd-a: runs without a quorum",
			},
		},
		{
			name:    "A new cluster waits for its other machines",
			happens: "One machine of a new cluster has booted. etcd starts when all its initial members exist.",
			todo:    "Nobody, unless it lasts: then see the machines that are missing.",
			change: func(f *health.Facts) {
				f.Instances[1].State, f.Instances[2].State = "pending", "pending"
				f.Instances[0].Reports = []health.StageReport{{Stage: "etcd", State: "running", Error: "etcd has started but has no quorum yet"}}
				withoutAPI(f, "https://demo-api.example.com:443 does not answer: connect: connection refused")
				delete(f.Reports, f.Instances[0].ID)
				f.Targets = nil
			},
			want: []string{
				"critical etcd quorum: no quorum yet: 3 of 3 members have not started: etcd-a (its machine has not started it), etcd-b (its machine i-0c4e2 is pending), etcd-c (its machine i-0c4e3 is pending)",
				"critical api kube-apiserver: https://demo-api.example.com:443 does not answer: connect: connection refused",
				"failed etcd etcd-a: its machine has not started it: stage etcd running: etcd has started but has no quorum yet",
				"failed group control-plane-b: 0 of 1 machines are running; i-0c4e2 is pending",
				"failed group control-plane-c: 0 of 1 machines are running; i-0c4e3 is pending",
				"failed etcd etcd-b: its machine i-0c4e2 is pending",
				"failed etcd etcd-c: its machine i-0c4e3 is pending",
			},
		},
	}
}

func apiFaults() []fault {
	return []fault{
		{
			name:    "The API does not answer from here",
			happens: "Machines, members and targets are healthy: the way from your computer to the load balancer is closed.",
			todo:    "The operator checks `access.api` of the manifest against the own address, the VPN and the proxy.",
			change: func(f *health.Facts) {
				withoutAPI(f, "https://demo-api.example.com:443 does not answer: dial tcp 198.51.100.7:443: i/o timeout")
				f.Reports = nil // no agent writes to its console
			},
			want: []string{
				"critical api kube-apiserver: https://demo-api.example.com:443 does not answer: connect to 198.51.100.7:443: no answer",
			},
		},
		{
			name:    "An API server does not answer",
			happens: "The process crashes or its manifest is not valid. The load balancer leaves it out.",
			todo:    "The operator reads the log. The agent restores a manifest that was changed on the machine.",
			change: func(f *health.Facts) {
				measured(f, 2, func(r *report.Report) {
					r.APIServer = &report.APIServer{Error: "get https://127.0.0.1:6443/readyz?verbose: dial tcp 127.0.0.1:6443: " + refused}
				})
				f.Targets[2].State, f.Targets[2].Description = "unhealthy", "Health checks failed"
				for p := range f.Pods {
					if f.Pods[p].Name == "kube-apiserver-"+f.Instances[2].NodeName {
						f.Pods[p].Running = false
						f.Pods[p].Reason = `container kube-apiserver: CrashLoopBackOff, restarted 6 times; last exit 1 (Error) 40s ago: unknown flag: --no-such-flag`
					}
				}
			},
			want: []string{
				"failed api kube-apiserver of i-0c4e3 (control-plane-c): kube-apiserver does not answer: get https://127.0.0.1:6443/readyz?verbose: connect to 127.0.0.1:6443: connection refused",
				"failed pod kube-system/kube-apiserver-ip-10-80-0-3: container kube-apiserver: CrashLoopBackOff, restarted 6 times; last exit 1 (Error) 40s ago: unknown flag: --no-such-flag",
				"failed target demo-api i-0c4e3 (control-plane-c): the load balancer sends it no requests: unhealthy: Health checks failed",
			},
		},
		{
			name:    "The load balancer does not reach an API server",
			happens: "The API server is ready, and the health check of the load balancer fails: a rule of the security group is missing.",
			todo:    "The operator restores the rule: `slipway drift demo`, then `slipway apply demo`.",
			change: func(f *health.Facts) {
				f.Targets[0].State, f.Targets[0].Description = "unhealthy", "Health checks failed"
			},
			want: []string{
				"failed target demo-api i-0c4e1 (control-plane-a): the load balancer sends it no requests: unhealthy: Health checks failed",
			},
		},
		{
			name:    "A machine is not registered with the load balancer",
			happens: "Somebody has deregistered it. The other API servers get all requests.",
			todo:    "The operator registers it again, or terminates the machine.",
			change:  func(f *health.Facts) { f.Targets = f.Targets[1:] },
			want: []string{
				"failed target demo-api i-0c4e1 (control-plane-a): is not registered with the target group, so it gets no requests",
			},
		},
	}
}

func podFaults() []fault {
	return []fault{
		{
			name:    "The pod network does not start",
			happens: "The node has joined and flannel does not run on it.",
			todo:    "Nobody for the first seconds of a node. If it stays, the operator reads flannel's log.",
			change: func(f *health.Facts) {
				f.Nodes[4].Ready = false
				f.Nodes[4].Reason = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"
			},
			want: []string{
				"failed node ip-10-80-0-5: not ready: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized",
			},
		},
		{
			name:    "The cloud controller manager does not initialize a node",
			happens: "With `spec.cloudProvider.nodeController: External`, a new node has a taint that the controller removes.",
			todo: "Nobody for the first seconds of a node. If it stays, the operator applies the channel of the controller, " +
				"or reads its log: its IAM role may lack a right.",
			change: func(f *health.Facts) { f.Nodes[4].Uninitialized = true },
			want: []string{
				"failed node ip-10-80-0-5: not ready: the cloud controller manager has not initialized it, so no pods are scheduled there",
			},
		},
		{
			name:    "A container crashes",
			happens: "The kubelet restarts it at growing intervals.",
			todo:    "The operator reads the log of the last container: `kubectl -n kube-system logs POD --previous`.",
			change: func(f *health.Facts) {
				f.Pods[len(f.Pods)-1].Running = false
				f.Pods[len(f.Pods)-1].Reason = `container coredns: CrashLoopBackOff, restarted 4 times; last exit 1 (Error) 25s ago: plugin/forward: not an IP address or file: "x"`
			},
			want: []string{
				`failed pod kube-system/coredns-7c9f: container coredns: CrashLoopBackOff, restarted 4 times; last exit 1 (Error) 25s ago: plugin/forward: not an IP address or file: "x"`,
			},
		},
		{
			name:    "A pod is not ready",
			happens: "The container runs, and its readiness probe fails: no Service sends it requests.",
			todo:    "The operator finds out what the probe waits for; here CoreDNS waits for the API.",
			change: func(f *health.Facts) {
				f.Pods[len(f.Pods)-1].Running, f.Pods[len(f.Pods)-1].Reason = false, "not Ready: readiness probe failed: 503"
			},
			want: []string{
				"failed pod kube-system/coredns-7c9f: not Ready: readiness probe failed: 503",
			},
		},
		{
			name:    "An image cannot be pulled",
			happens: "The registry does not answer, or does not have the image.",
			todo:    "The operator checks the route to the registry, or the mirror in the manifest.",
			change: func(f *health.Facts) {
				f.Pods[len(f.Pods)-1].Running = false
				f.Pods[len(f.Pods)-1].Reason = `container coredns: ImagePullBackOff: Back-off pulling image "registry.k8s.io/coredns/coredns:v1.14.1"`
			},
			want: []string{
				`failed pod kube-system/coredns-7c9f: container coredns: ImagePullBackOff: Back-off pulling image "registry.k8s.io/coredns/coredns:v1.14.1"`,
			},
		},
		{
			name:    "The console of a machine cannot be read",
			happens: "EC2 throttles or denies the call. Everything else is checked.",
			todo:    "The operator gives the permission `ec2:GetConsoleOutput` (`slipway iam operator-policy`), or tries again.",
			change: func(f *health.Facts) {
				f.Unread = []health.Unread{{What: "the console of i-0c4e5", Error: "api error RequestLimitExceeded: Request limit exceeded."}}
				f.Nodes[4].Ready, f.Nodes[4].Reason = false, "kubelet is starting"
			},
			want: []string{
				"failed node ip-10-80-0-5: not ready: kubelet is starting",
			},
		},
	}
}

func certificateFaults() []fault {
	return []fault{
		{
			name:    "A CA expires soon",
			happens: "An authority has less than 30 days left. Everything works until then, and nothing afterwards.",
			todo:    "The operator plans the rotation of the authority.",
			change: func(f *health.Facts) {
				for n := range 5 {
					measured(f, n, func(r *report.Report) { r.Certificates[1].NotAfter = now.AddDate(0, 0, 21) })
				}
			},
			want: []string{
				"warning certificate authorities: CA certificate kubernetes-ca expires in 21 days, at 2026-12-12T12:00:00Z",
			},
		},
		{
			name: "A certificate is not renewed",
			happens: "Agents renew certificates after two thirds of their time: 12 hours on workers, a week on the control plane. This one " +
				"is late by an eighth of what is left, at most six hours.",
			todo: "The operator reads the agent's journal. A worker needs the join endpoint (port 3988) of the control plane.",
			change: func(f *health.Facts) {
				measured(f, 3, func(r *report.Report) {
					r.Certificates[0].RenewAt, r.Certificates[0].NotAfter = now.Add(-3*time.Hour), now.Add(time.Hour)
				})
				addCondition(f, 3, report.Condition{
					Component: report.Task("certificates"), State: report.Warning,
					Cause: "fails: post https://api.demo.internal:3988/join: no answer",
					Next:  "read the agent's journal on the machine: journalctl -u slipway-node",
				})
			},
			want: []string{
				"warning machine i-0c4e4 (workers): agent task certificates: fails: post https://api.demo.internal:3988/join: no answer",
				"warning certificate i-0c4e4 (workers): certificate kubelet was due for renewal at 2026-11-21T09:00:00Z and expires at 2026-11-21T13:00:00Z",
			},
		},
		{
			name:    "A certificate has expired",
			happens: "The renewal failed for more than four hours, on a worker, or two days. The kubelet cannot talk to the API any more.",
			todo:    "The operator fixes the cause of the failed renewal, or terminates the machine.",
			change: func(f *health.Facts) {
				measured(f, 3, func(r *report.Report) {
					r.Certificates[0].RenewAt, r.Certificates[0].NotAfter = now.Add(-5*time.Hour), now.Add(-time.Hour)
				})
				f.Nodes[3].LeaseRenewed = now.Add(-time.Hour)
			},
			want: []string{
				"failed node ip-10-80-0-4: its kubelet has not reported for 60m: it has stopped, or the machine hangs or is cut off from the API",
				"failed certificate i-0c4e4 (workers): certificate kubelet expired at 2026-11-21T11:00:00Z",
			},
		},
	}
}

// loseTwoMachines is the loss of two of three machines of the control plane.
func loseTwoMachines(f *health.Facts) {
	f.Instances[1].State, f.Instances[2].State = "terminated", "shutting-down"
	measured(f, 0, func(r *report.Report) {
		r.Etcd.Quorum, r.Etcd.LeaderID = false, ""
		r.Etcd.Peers = []report.Peer{{Slot: "b", Error: "i/o timeout"}, {Slot: "c", Error: "i/o timeout"}}
		r.APIServer = &report.APIServer{FailedChecks: []string{"etcd"}}
	})
	withoutAPI(f, "https://demo-api.example.com:443 does not answer: "+timeout)
	f.Targets[0].State, f.Targets[0].Description = "unhealthy", "Health checks failed"
}
