// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// newWorkerBench returns a bench of a worker.
func newWorkerBench(t *testing.T) *followBench {
	t.Helper()
	return newWorkerBenchOf(newFollowBench(t))
}

// newWorkerBenchOf makes the machine of a bench a worker.
func newWorkerBenchOf(b *followBench) *followBench {
	b.role = v1alpha1.RoleWorker
	b.boot.Role = v1alpha1.RoleWorker
	b.boot.ClusterID = ""
	b.boot.Slots = nil
	b.boot.Etcd = node.EtcdSettings{}
	b.boot.APISANs = nil
	b.boot.Store = node.MachineStore{}
	b.boot.Join = node.JoinPolicy{}
	b.boot.Trust = node.TrustBundle{KubernetesCA: b.boot.Trust.KubernetesCA}
	return b
}

// TestFirstWorkerSoaks: the first worker of a group proves a revision only after some time without trouble; another one
// goes ahead at once then, and a refusal of a later one stops the others.
func TestFirstWorkerSoaks(t *testing.T) {
	b := newWorkerBench(t)
	a, f := b.start()
	f.soak = canarySoak
	next := b.nextDocument()
	b.revise(next)
	begin := b.now
	b.now = b.now.Add(revisionInterval)
	changed, err := f.step(t.Context())
	if err != nil || changed == nil || len(b.lock.Proven) != 1 || b.lock.Holder != "" {
		t.Fatalf("%v, %v, %+v", changed, err, b.lock)
	}
	if took := b.now.Sub(begin) - revisionInterval; took < canarySoak || took > 2*canarySoak {
		t.Errorf("it was proven after %s", took)
	}
	a.doc = changed.document
	b.check(a, next)

	late := newFollowBenchLike(t, b.template)
	late.role = b.role
	late.boot = b.boot
	late.lock = b.lock
	a, f = late.start()
	late.broken["kubelet"] = "321Mi"
	late.revise(next)
	if err := late.follow(a, f); err != nil {
		t.Fatal(err)
	}
	late.check(a, b.boot)
	third := follow.Claim{Machine: "i-3", Group: "control-plane", Serial: 2, Document: b.publish(next), InParallel: true}
	if turn, reason := late.lock.Decide(third, late.now); turn != follow.TurnRefused {
		t.Errorf("after a later machine refused it, another one is told %s %q", turn, reason)
	}
}

// TestTroubleDuringTheSoak: a threshold that puts the node under pressure some seconds after the kubelet has started
// reaches no other machine.
func TestTroubleDuringTheSoak(t *testing.T) {
	b := newWorkerBench(t)
	a, f := b.start()
	f.soak = canarySoak
	b.failLater = map[string]int{"kubelet": 15}
	b.revise(b.nextDocument())
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, b.boot)
	if got := b.status(a); got.State != report.RevisionRefused || !strings.Contains(got.Cause, "its node has MemoryPressure") {
		t.Errorf("status %+v", got)
	}
	if len(b.lock.Proven) != 0 || len(b.lock.Refused) != 1 {
		t.Errorf("lock %+v", b.lock)
	}
}

// TestMissingImage: nothing is changed for an image that cannot be pulled.
func TestMissingImage(t *testing.T) {
	for _, bench := range []func(*testing.T) *followBench{newFollowBench, newWorkerBench} {
		b := bench(t)
		a, f := b.start()
		b.noImage = imageAt("pause:v2")
		b.revise(b.nextDocument())
		if err := b.follow(a, f); err != nil {
			t.Fatal(err)
		}
		b.check(a, b.boot)
		if got := b.status(a); got.State != report.RevisionRefused || !strings.Contains(got.Cause, "pull image registry.k8s.io/pause:v2") || b.restarts != nil {
			t.Errorf("status %+v, restarts %v", got, b.restarts)
		}
	}
}

// TestFailedRestoration: when a component does not work with the former document either, the others are restored, the
// process ends, and the next one restarts what the change had restarted. The revision is not tried again.
func TestFailedRestoration(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	b.broken["etcd"] = "ExecStart"
	b.revise(b.nextDocument())
	err := b.follow(a, f)
	if !isUnrestored(err) || !strings.Contains(err.Error(), "restore the former node document: etcd: does not work") {
		t.Fatalf("got %v", err)
	}
	if a.documentState.Refused.Serial != 2 || !slices.Contains(a.documentState.Attempt.Restarts, "etcd") {
		t.Errorf("state %+v", a.documentState)
	}
	if len(b.lock.Refused) != 1 {
		t.Errorf("lock %+v", b.lock)
	}
	delete(b.broken, "etcd")
	b.running["etcd"] = map[string]string{"stale": "process"}
	a, f = b.start()
	b.check(a, b.boot)
	restarts := len(b.restarts)
	if err := b.follow(a, f); err != nil || len(b.restarts) != restarts {
		t.Errorf("tried again: %v, %v", err, b.restarts[restarts:])
	}
	if b.status(a).State != report.RevisionRefused || a.documentState.Attempt.Serial != 0 {
		t.Errorf("status %+v, state %+v", b.status(a), a.documentState)
	}
}

// TestOldTurnProvesNothing: an agent that was killed while it held the turn for one revision says nothing about the next
// one when it releases the turn.
func TestOldTurnProvesNothing(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	b.revise(b.boot)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.lock = b.lock.Take(follow.Claim{Machine: a.instance.ID}, b.now)
	b.revise(b.nextDocument())
	f = b.newFollower(a)
	f.releaseOldTurn(t.Context(), b.revisions.Groups["control-plane"])
	if b.lock.Holder != "" || len(b.lock.Proven)+len(b.lock.Refused) != 0 || !f.released {
		t.Errorf("lock %+v", b.lock)
	}
}

// TestLostTurn: a machine whose turn another one may have restarts nothing else, and restores its former document.
func TestLostTurn(t *testing.T) {
	b := newFollowBench(t)
	a, _ := b.start()
	to := a.withDocument(b.nextDocument())
	turn := &keptTurn{}
	calls := 0
	tr := transition{
		from: a, to: to, control: func(_, to *Agent) componentControl { return benchControl{b, to} },
		mayGoOn: func() error {
			if calls++; calls > 2 {
				turn.lost.Store(true)
			}
			return turn.check()
		},
	}
	err := tr.run(t.Context())
	if _, ok := errors.AsType[rolledBackError](err); !ok || !strings.Contains(err.Error(), "lost its turn") {
		t.Errorf("got %v", err)
	}
	b.check(a, b.boot)
	if slices.Contains(b.restarts, "etcd") {
		t.Errorf("restarts %v", b.restarts)
	}
}

// TestKeepTurn: a turn that another machine has taken is lost, and so is one that cannot be renewed.
func TestKeepTurn(t *testing.T) {
	for name, c := range map[string]struct {
		holder string
		fails  bool
		lost   bool
	}{"held": {"", false, false}, "taken": {"i-other", false, true}, "unreachable": {"", true, true}} {
		b := newFollowBench(t)
		a, f := b.start()
		b.lock = b.lock.Take(follow.Claim{Machine: a.instance.ID}, b.now)
		if c.holder != "" {
			b.lock.Holder = c.holder
		}
		rounds := make(chan struct{}, 10)
		a.Wait = func(ctx context.Context, d time.Duration) error {
			select {
			case <-rounds:
				b.mu.Lock()
				defer b.mu.Unlock()
				b.now = b.now.Add(d)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		f.turns = failingTurns{b, c.fails}
		turn := f.keepTurn(t.Context(), node.Revision{Serial: 2, Document: "x"}, true)
		for range 5 {
			rounds <- struct{}{}
		}
		for len(rounds) > 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
		turn.stop()
		if (turn.check() != nil) != c.lost {
			t.Errorf("%s: %v", name, turn.check())
		}
	}
}
