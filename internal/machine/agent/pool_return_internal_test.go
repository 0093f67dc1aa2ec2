// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// returningMachine is a machine that has joined the cluster and returns to its warm pool.
type returningMachine struct {
	*endingMachine
	root     *HostFS
	timedOut bool // Auto Scaling has stopped the machine, because it heard nothing
}

func newReturningMachine(t *testing.T) *returningMachine {
	t.Helper()
	m := &returningMachine{endingMachine: newEndingMachine(t), root: &HostFS{Dir: t.TempDir()}}
	m.meta[targetStateKey] = "Warmed:Stopped"
	if _, err := m.root.Write(File{Path: kube.PKIDir + "/kubelet-client.crt", Body: []byte("x"), Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	return m
}

// restart starts a process of the agent, which waits while it takes itself for a machine of the pool. Auto Scaling waits for a
// sign of life for a minute.
func (m *returningMachine) restart() *terminationWatch {
	m.t.Helper()
	w := m.start()
	w.agent.Root = m.root
	w.agent.doc = warmDocument()
	for end := m.now.Add(time.Minute); ; m.now = m.now.Add(2 * time.Second) {
		err := warmPoolOf(w.agent).check(m.t.Context())
		_, waits := errors.AsType[notReadyError](err)
		switch {
		case err != nil && !waits:
			m.t.Fatal(err)
		case !waits:
			return w
		case m.now.After(end):
			m.timedOut = true
			return w
		}
	}
}

// look lets the agent look once a second until the hook is complete, for a minute after its first start.
func (m *returningMachine) look() {
	var end time.Time
	start := func() *terminationWatch {
		w := m.restart()
		if end.IsZero() {
			end = m.now.Add(time.Minute)
		}

		return w
	}
	m.runWhile(start, func() bool { return !m.timedOut && m.now.Before(end) })
}

// TestRestartsWhileAMachineReturnsToItsPool: wherever the agent is killed, its next process continues the drain, and does not
// take the machine for a new one of the pool.
func TestRestartsWhileAMachineReturnsToItsPool(t *testing.T) {
	clean := newReturningMachine(t)
	clean.look()
	if clean.completed.IsZero() || clean.calls < 10 {
		t.Fatalf("completed %v after %d calls; stopped undrained: %t", clean.completed, clean.calls, clean.timedOut)
	}

	for k := 1; k <= clean.calls; k++ {
		for _, after := range []bool{false, true} {
			m := newReturningMachine(t)
			m.killAt, m.afterEffect = k, after
			m.look()
			spec, _ := m.node["spec"].(map[string]any)
			if m.timedOut || m.completed.IsZero() || len(m.pods) > 0 || spec["unschedulable"] != true {
				t.Errorf("killed at call %d (after its effect: %t): stopped undrained: %t, completed %v, pods %v, node %v",
					k, after, m.timedOut, m.completed, m.pods, m.node)
			}
		}
	}

	w := clean.restart() // before Auto Scaling stops the machine
	for range 120 {
		if _, err := w.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		clean.now = clean.now.Add(time.Second)
	}
	spec, _ := clean.node["spec"].(map[string]any)
	if last := w.agent.Report.last; clean.timedOut || spec["unschedulable"] != true || last.Stage != "warm" {
		t.Errorf("after the hook: timed out %t, node %v, last report %+v", clean.timedOut, clean.node, last)
	}
}

// TestJoinedMachineConvergesInThePool: the agent of a machine that has joined converges although the machine is to go to its
// pool: it starts the kubelet, pulls no images, and has nothing to say about a launch.
func TestJoinedMachineConvergesInThePool(t *testing.T) {
	for _, joined := range []bool{true, false} {
		b := newWorkerBench(t)
		a, _ := b.start()
		a.doc.Files = nil
		a.doc.Images["flannel"] = imageAt("flannel:v1")
		a.instance.Address = netip.MustParseAddr("10.80.0.9")
		log := &commandLog{followBench: b}
		group := &launchGroup{t: t}
		a.Run = log
		a.Lifecycle = group
		a.Metadata = target("Warmed:Stopped")
		waits := 0
		a.Wait = func(ctx context.Context, d time.Duration) error {
			if d == launchBeatInterval {
				<-ctx.Done()
				return ctx.Err()
			}
			if waits++; waits > 100 {
				return context.Canceled
			}
			return nil
		}
		if joined {
			joinBench(t, a)
		}

		err := a.convergeWorker(t.Context())
		text := strings.Join(log.commands, "\n")
		started := strings.Contains(text, "start --no-block kubelet")
		pulled := strings.Contains(text, "ctr ")
		if (err == nil) != joined || started != joined || pulled == joined {
			t.Errorf("joined %t: started %t, pulled %t: %v", joined, started, pulled, err)
		}
		if joined && (group.beats > 0 || group.calls > 0) {
			t.Errorf("%d heartbeats, %d calls about a launch", group.beats, group.calls)
		}
	}
}

// joinBench gives a worker the certificates that the join endpoint issues.
func joinBench(t *testing.T, a *Agent) {
	t.Helper()
	if a.doc.Role != v1alpha1.RoleWorker {
		t.Fatal("no worker")
	}
	client, server := join.NodeLeaves(a.instance.Name, a.instance.Address, NodeTTL)
	if err := issuePairs(a.Root, a.bundle, []keyPair{
		{path: kube.PKIDir + "/kubelet-client", ca: pki.KubernetesCA, leaf: client},
		{path: kube.PKIDir + "/kubelet", ca: pki.KubernetesCA, leaf: server},
	}, a.Now()); err != nil {
		t.Fatal(err)
	}
}
