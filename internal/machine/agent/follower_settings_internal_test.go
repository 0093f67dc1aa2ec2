// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// failingTurns may fail to change the lock.
type failingTurns struct {
	*followBench
	fails bool
}

func (f failingTurns) change(ctx context.Context, how func(follow.Lock) follow.Lock) error {
	if f.fails {
		return errors.New("no API")
	}
	return f.followBench.change(ctx, how)
}

// TestRestartsAgreeWithTheTable: the components that an agent restarts for a change are those that the table of
// classes, and so the plan and the documentation, promise.
func TestRestartsAgreeWithTheTable(t *testing.T) {
	b := newFollowBench(t)
	a, _ := b.start()
	for field, change := range map[string]func(*node.Document){
		"kubelet.kubeReserved.cpu":           func(d *node.Document) { d.Kubelet.KubeReserved = map[string]string{"cpu": "1"} },
		"kubelet.systemReserved.cpu":         func(d *node.Document) { d.Kubelet.SystemReserved = map[string]string{"cpu": "1"} },
		"kubelet.evictionHard.nodefs.inodes": func(d *node.Document) { d.Kubelet.EvictionHard = map[string]string{"nodefs.inodes": "1"} },
		"kubelet.evictionSoft.memory.available": func(d *node.Document) {
			d.Kubelet.EvictionSoft = map[string]string{"memory.available": "1Gi"}
			d.Kubelet.EvictionSoftGracePeriod = map[string]string{"memory.available": "2m"}
		},
		"kubelet.maxPods":                     func(d *node.Document) { d.Kubelet.MaxPods = 33 },
		"kubelet.podPidsLimit":                func(d *node.Document) { d.Kubelet.PodPidsLimit = 99 },
		"kubelet.imageGCHighThresholdPercent": func(d *node.Document) { d.Kubelet.ImageGCHighThresholdPercent = 90 },
		"kubelet.imageGCLowThresholdPercent":  func(d *node.Document) { d.Kubelet.ImageGCLowThresholdPercent = 50 },
		"kubelet.containerLogMaxSize":         func(d *node.Document) { d.Kubelet.ContainerLogMaxSize = "50Mi" },
		"kubelet.containerLogMaxFiles":        func(d *node.Document) { d.Kubelet.ContainerLogMaxFiles = 7 },
		"kubelet.maxParallelImagePulls":       func(d *node.Document) { d.Kubelet.MaxParallelImagePulls = 9 },
		"kubelet.allowedUnsafeSysctls":        func(d *node.Document) { d.Kubelet.AllowedUnsafeSysctls = []string{"net.*"} },
		"sysctls.net.core.somaxconn":          func(d *node.Document) { d.Sysctls = map[string]string{"net.core.somaxconn": "5"} },
		"kubeAPIServer.maxRequestsInflight":   func(d *node.Document) { d.KubeAPIServer.MaxRequestsInflight = 800 },
		"kubeAPIServer.serviceAccountIssuer":  func(d *node.Document) { d.KubeAPIServer.ServiceAccountIssuer = "https://a" },
		"kubeAPIServer.acceptedServiceAccountIssuers": func(d *node.Document) {
			d.KubeAPIServer.AcceptedServiceAccountIssuers = []string{"https://a"}
		},
		"kubeAPIServer.eventTTL":          func(d *node.Document) { d.KubeAPIServer.EventTTL = "3h" },
		"kubeAPIServer.auditLogMaxAge":    func(d *node.Document) { d.KubeAPIServer.AuditLogMaxAge = 40 },
		"kubeAPIServer.auditLogMaxBackup": func(d *node.Document) { d.KubeAPIServer.AuditLogMaxBackup = 40 },
		"kubeAPIServer.auditLogMaxSize":   func(d *node.Document) { d.KubeAPIServer.AuditLogMaxSize = 400 },
		"kubeAPIServer.maxMutatingRequestsInflight": func(d *node.Document) {
			d.KubeAPIServer.MaxMutatingRequestsInflight = 300
		},
		"kubeAPIServer.defaultNotReadyTolerationSeconds": func(d *node.Document) {
			d.KubeAPIServer.DefaultNotReadyTolerationSeconds = 60
		},
		"kubeAPIServer.defaultUnreachableTolerationSeconds": func(d *node.Document) {
			d.KubeAPIServer.DefaultUnreachableTolerationSeconds = 60
		},
		"kubeControllerManager.terminatedPodGCThreshold": func(d *node.Document) {
			d.KubeControllerManager.TerminatedPodGCThreshold = 50
		},
		"kubeControllerManager.nodeMonitorGracePeriod": func(d *node.Document) {
			d.KubeControllerManager.NodeMonitorGracePeriod = "90s"
		},
		"kubeControllerManager.horizontalPodAutoscalerSyncPeriod": func(d *node.Document) {
			d.KubeControllerManager.HorizontalPodAutoscalerSyncPeriod = "30s"
		},
		"kubeControllerManager.serviceAccountTokenSecrets": func(d *node.Document) {
			d.KubeControllerManager.ServiceAccountTokenSecrets = v1alpha1.TokenSecretsDisabled
		},
		"etcd.heartbeatIntervalMS":       func(d *node.Document) { d.Etcd.HeartbeatIntervalMS = 7 },
		"etcd.quotaBytes":                func(d *node.Document) { d.Etcd.QuotaBytes = 7 << 30 },
		"etcd.electionTimeoutMS":         func(d *node.Document) { d.Etcd.ElectionTimeoutMS = 70 },
		"images.pause":                   func(d *node.Document) { d.Images["pause"] = "x" },
		"images.kube-apiserver":          func(d *node.Document) { d.Images["kube-apiserver"] = "x" },
		"images.kube-controller-manager": func(d *node.Document) { d.Images["kube-controller-manager"] = "x" },
		"images.kube-scheduler":          func(d *node.Document) { d.Images["kube-scheduler"] = "x" },
		"images.coredns":                 func(d *node.Document) { d.Images["coredns"] = "x" },
		"apiSANs":                        func(d *node.Document) { d.APISANs = []string{"x"} },
		"join.workerRoles.more":          func(d *node.Document) { d.Join.WorkerRoles = map[string]string{"more": "x"} },
	} {
		next := b.boot
		next.Images = maps.Clone(next.Images)
		change(&next)
		was, err := a.machineFiles()
		if err != nil {
			t.Fatal(err)
		}
		will, err := a.withDocument(next).machineFiles()
		if err != nil {
			t.Fatal(err)
		}
		rule := node.ClassOf(field)
		want := slices.Clone(rule.Restarts)
		slices.Sort(want)
		got := componentsOf(changedFiles(was, will))
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("%s restarts %v, the table says %v", field, got, want)
		}
		if rule.Class == node.ClassReplace {
			t.Errorf("%s needs a new machine", field)
		}
	}
}

// putSysctl sets a kernel setting of the machine.
func (b *followBench) putSysctl(name, value string) {
	b.t.Helper()
	p := b.dir + "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(value+"\n"), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// TestFollowSysctls: kernel settings are set without a restart, and set back if the rest of the document does not work or
// if the kernel does not have one of them.
func TestFollowSysctls(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	b.putSysctl("net.core.somaxconn", "4096")
	next := b.boot
	next.Sysctls = map[string]string{"net.core.somaxconn": "8192"}
	b.revise(next)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, next)
	if got := b.read("/proc/sys/net/core/somaxconn"); got != "8192" || b.restarts != nil {
		t.Errorf("somaxconn is %q, restarts %v", got, b.restarts)
	}
	if !strings.Contains(b.read("/etc/sysctl.d/99-slipway.conf"), "net.core.somaxconn = 8192\n") {
		t.Error("a boot would not set it")
	}

	missing := b.boot
	missing.Sysctls = map[string]string{"net.core.somaxconn": "1", "net.core.typo": "1"}
	b.revise(missing)
	if err := b.follow(a, b.newFollower(a)); err != nil {
		t.Fatal(err)
	}
	if got := b.status(a); got.State != report.RevisionRefused || !strings.Contains(got.Cause, "the kernel has no setting net.core.typo") {
		t.Errorf("status %+v", got)
	}
	b.check(a, next)

	broken := b.nextDocument()
	broken.Sysctls = map[string]string{"net.core.somaxconn": "2"}
	b.broken["etcd"] = "ETCD_HEARTBEAT_INTERVAL=250"
	b.revise(broken)
	if err := b.follow(a, b.newFollower(a)); err != nil {
		t.Fatal(err)
	}
	b.check(a, next)
	if got := b.read("/proc/sys/net/core/somaxconn"); got != "8192" {
		t.Errorf("after the return, somaxconn is %q", got)
	}
}

// TestJudgeExits: a program that exits once may have another reason than its new settings; one that exits again and again
// has none, and nobody waits for it.
func TestJudgeExits(t *testing.T) {
	u := restartedUnit{exits: 4, seen: 4}
	for i, step := range []struct {
		exits        int
		works, loops bool
	}{{4, true, false}, {5, false, false}, {5, true, false}, {6, false, false}, {7, false, true}, {7, false, true}} {
		err := u.judgeExits(step.exits)
		if (err == nil) != step.works || isCrashLoop(err) != step.loops {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

// TestReadySince: the kubelet works when it has reported its node as Ready after its restart; what its predecessor
// reported does not count.
func TestReadySince(t *testing.T) {
	restart := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		`{}`: "its node has no Ready condition",
		`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-11-22T11:59:59Z"}]}}`:                   "it has not reported the state of its node yet",
		`{"status":{"conditions":[{"type":"Ready","status":"False","message":"down","lastHeartbeatTime":"2026-11-22T12:00:03Z"}]}}`: "its node is not Ready: down",
		`{"status":{"conditions":[{"type":"X"},{"type":"Ready","status":"True","lastHeartbeatTime":"2026-11-22T12:00:03Z"}]}}`:      "",
	} {
		var s nodeStatus
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := s.readySince(restart); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestCrashLoopIsNotWaitedFor: the machine returns to its former document as soon as the component has exited repeatedly.
func TestCrashLoopIsNotWaitedFor(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	b.broken["kubelet"] = "321Mi"
	b.crashes = true
	b.revise(b.nextDocument())
	begin := b.now
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, b.boot)
	if got := b.status(a); !strings.Contains(got.Cause, "kubelet: does not work: it exited 3 times") {
		t.Errorf("status %+v", got)
	}
	if took := b.now.Sub(begin) - 10*revisionInterval; took >= unitPatience {
		t.Errorf("waited %s", took)
	}
}

// TestWorkersDoNotAskAtOnce: a thousand workers that wait for the first one ask at most some 200 times a second.
func TestWorkersDoNotAskAtOnce(t *testing.T) {
	pauses := map[time.Duration]bool{}
	perSecond := 0.0
	for i := range 1000 {
		pause := pauseBetweenClaims(v1alpha1.RoleWorker, fmt.Sprintf("i-%017x", i))
		pauses[pause] = true
		perSecond += 1 / pause.Seconds()
		if pause > 15*time.Second {
			t.Errorf("a worker waits %s", pause)
		}
	}
	if perSecond > 200 || len(pauses) < 500 {
		t.Errorf("%.0f requests a second, %d different pauses", perSecond, len(pauses))
	}
}
