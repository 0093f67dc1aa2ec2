// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

func TestFollow(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	if err := b.follow(a, f); err != nil || b.status(a).State != report.RevisionUnknown {
		t.Fatalf("without revisions: %v, %+v", err, b.status(a))
	}
	next := b.nextDocument()
	b.revise(next)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, next)
	if diff := cmp.Diff([]string{"containerd", "kubelet", "etcd", "kube-scheduler"}, b.restarts); diff != "" {
		t.Errorf("restarts (-want +got):\n%s", diff)
	}
	want := report.Revision{State: report.RevisionCurrent, Serial: 2, Followed: b.publish(next), Desired: b.publish(next), DesiredSerial: 2}
	if diff := cmp.Diff(want, b.status(a)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	again, _ := b.start() // the machine reboots
	b.check(again, next)
}

// TestFollowWhatNeedsAMachine: the rest of a revision is applied, and the report names what is missing.
func TestFollowWhatNeedsAMachine(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	partly := b.nextDocument()
	whole := partly
	whole.NodeLabels = map[string]string{"example.com/team": "a"}
	b.revise(whole)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, partly)
	want := report.Revision{
		State: report.RevisionPending, Serial: 2, DesiredSerial: 2, Followed: b.publish(whole), Desired: b.publish(whole),
		Pending: []string{"nodeLabels.example.com/team"},
	}
	if diff := cmp.Diff(want, b.status(a)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if b.status(a).NeedsNoMachine(b.publish(whole)) {
		t.Error("the machine needs no replacement")
	}
}

// TestRefuse: a value that a component does not start with is rolled back on this machine and reported, and is not
// tried again, neither here nor on another machine. A correction is applied.
func TestRefuse(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	bad := b.nextDocument()
	b.broken["etcd"] = "ETCD_HEARTBEAT_INTERVAL=250"
	b.revise(bad)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, b.boot)
	got := b.status(a)
	if got.State != report.RevisionRefused || !strings.Contains(got.Cause, "etcd: does not work 1m0s after its restart: unknown value") {
		t.Errorf("status %+v", got)
	}
	if c := a.conditions.Conditions(); len(c) != 1 || c[0].Component != report.NodeDocument || c[0].State != report.Warning {
		t.Errorf("conditions %+v", c)
	}
	restarts := len(b.restarts)
	if err := b.follow(a, f); err != nil || len(b.restarts) != restarts {
		t.Errorf("tried again: %v, %v", err, b.restarts)
	}
	other := follow.Claim{Machine: "i-2", Group: "control-plane", Serial: 2, Document: b.publish(bad)}
	if turn, reason := b.lock.Decide(other, b.now); turn != follow.TurnRefused || !strings.Contains(reason, "machine "+a.instance.ID+": etcd:") {
		t.Errorf("another machine: %s %q", turn, reason)
	}
	good := b.nextDocument()
	good.Etcd.HeartbeatIntervalMS = 300
	good.Etcd.ElectionTimeoutMS = 3000
	b.revise(good)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, good)
	if c := a.conditions.Conditions(); len(c) != 0 {
		t.Errorf("conditions %+v", c)
	}
}

// TestRefusedElsewhere: a machine does not try what another one of its group could not apply.
func TestRefusedElsewhere(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	next := b.nextDocument()
	b.revise(next)
	b.lock = b.lock.Release(follow.Claim{Machine: "i-2", Group: "control-plane", Serial: 2, Document: b.publish(next)}, "kubelet: broken")
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, b.boot)
	if got := b.status(a); got.State != report.RevisionRefused || got.Cause != "refused by machine i-2: kubelet: broken" || b.restarts != nil {
		t.Errorf("status %+v, restarts %v", got, b.restarts)
	}
}

// TestWaitForTurn: nothing restarts while another machine is being changed, or while something does not work. What
// restarts nothing is applied at once.
func TestWaitForTurn(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	b.revise(b.nextDocument())
	b.lock = b.lock.Take(follow.Claim{Machine: "i-2"}, b.now.Add(24*time.Hour))
	if err := b.follow(a, f); err != nil || b.restarts != nil {
		t.Fatalf("%v, %v", err, b.restarts)
	}
	if got := b.status(a); got.State != report.RevisionWaiting || got.Cause != "machine i-2 is being changed" {
		t.Errorf("status %+v", got)
	}
	b.lock = follow.Lock{}
	f.notSafe = func(context.Context) error { return errors.New("2 of 3 API servers serve") }
	if err := b.follow(a, f); err != nil || b.restarts != nil || b.status(a).Cause != "2 of 3 API servers serve" {
		t.Errorf("%v, %v, %+v", err, b.restarts, b.status(a))
	}
	live := b.boot
	live.APISANs = []string{"api.example.com"}
	b.revise(live)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, live)
}

// TestMembershipComesFirst: slots and the settings of a recovery are applied before the machine waits for its turn to restart
// components. Machines without a quorum get no turn, so they kept the slots and the recovery of their former document, although
// both were to end the loss of the quorum.
func TestMembershipComesFirst(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	next := b.nextDocument()
	next.Slots = append(slices.Clone(next.Slots), node.NewSlot("demo", "d"), node.NewSlot("demo", "e"))
	next.Etcd.QuorumLoss = v1alpha1.EtcdQuorumLoss{Recovery: v1alpha1.RecoveryAutomatic, After: "3m"}
	next.Etcd.NewVolumes = node.NewVolumes{After: "17m", Tags: map[string]string{"team": "a"}}
	first := b.boot
	first.Slots = next.Slots
	first.Etcd.QuorumLoss = next.Etcd.QuorumLoss
	first.Etcd.NewVolumes = next.Etcd.NewVolumes

	noQuorum := errors.New("this machine's etcd member has no quorum")
	notSafe := func(context.Context) error { return noQuorum }
	f.notSafe = notSafe
	b.revise(next)
	for range 5 {
		b.now = b.now.Add(revisionInterval)
		changed, err := f.step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if changed != nil {
			a.doc = changed.document
			f = b.newFollower(a)
			f.notSafe = notSafe
		}
	}
	b.check(a, first)
	if got := b.status(a); b.restarts != nil || got.State != report.RevisionWaiting || got.Cause != noQuorum.Error() || got.Followed != b.publish(b.boot) {
		t.Errorf("without a quorum: restarts %v, status %+v", b.restarts, got)
	}
	again, _ := b.start()
	b.check(again, first)

	// A change that is taken back is followed back, although the machine followed the former document last.
	b.revise(b.boot)
	if err := b.follow(again, b.newFollower(again)); err != nil {
		t.Fatal(err)
	}
	if got := b.status(again); got.State != report.RevisionCurrent {
		t.Errorf("after the return: %+v, state %+v", got, again.documentState)
	}
	b.check(again, b.boot)

	b.revise(next)
	if err := b.follow(again, b.newFollower(again)); err != nil {
		t.Fatal(err)
	}
	b.check(again, next)
	if got := b.status(again); got.State != report.RevisionCurrent || got.Followed != b.publish(next) {
		t.Errorf("with a quorum: %+v", got)
	}
}

// TestForgedRevisions: what is not signed with the cluster's CA is not followed, and neither is an older revision.
func TestForgedRevisions(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	next := b.nextDocument()
	b.revise(b.boot)
	old := b.signed
	b.revise(next)
	right := b.signed
	forged, err := b.revisions.Sign(testBundle(t).CAs[pki.KubernetesCA].Key())
	if err != nil {
		t.Fatal(err)
	}
	b.signed = forged
	if err := b.follow(a, f); !errors.Is(err, pki.ErrSignature) {
		t.Errorf("got %v", err)
	}
	b.check(a, b.boot)
	b.signed = right
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, next)
	b.signed = old
	f = b.newFollower(a)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, next)
	if got := b.status(a); !strings.Contains(got.Cause, "is older than revision") {
		t.Errorf("status %+v", got)
	}
}

// TestMissingRevisions: revisions that the machine followed and cannot read any more are a warning; none before the first
// are not.
func TestMissingRevisions(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	if err := b.follow(a, f); err != nil || len(a.conditions.Conditions()) > 0 {
		t.Fatalf("before the first revision: %v, %+v", err, a.conditions.Conditions())
	}
	b.revise(b.boot)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	signed := b.signed
	b.signed = nil
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	c := a.conditions.Conditions()
	if len(c) != 1 || c[0].State != report.Warning || !strings.Contains(c[0].Cause, "cannot be read: get s3://bucket/state/") || !strings.Contains(c[0].Cause, "access denied") {
		t.Errorf("conditions %+v", c)
	}
	b.signed = signed
	if err := b.follow(a, f); err != nil || len(a.conditions.Conditions()) > 0 {
		t.Errorf("when they are back: %v, %+v", err, a.conditions.Conditions())
	}
}

// TestRetryOfARefusal: a refused document is tried again when it is published again with a new serial, and not before,
// also by a machine that another one's refusal has stopped.
func TestRetryOfARefusal(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	b.noImage = imageAt("pause:v2")
	next := b.nextDocument()
	b.revise(next)
	if err := b.follow(a, f); err != nil || b.status(a).State != report.RevisionRefused || b.status(a).DesiredSerial != 2 {
		t.Fatalf("%v, %+v", err, b.status(a))
	}
	other := follow.Claim{Machine: "i-2", Group: "control-plane", Serial: 2, Document: b.publish(next)}
	if turn, _ := b.lock.Decide(other, b.now); turn != follow.TurnRefused {
		t.Errorf("another machine: %s", turn)
	}
	b.noImage = ""
	if err := b.follow(a, f); err != nil || b.status(a).State != report.RevisionRefused {
		t.Errorf("it is tried again by itself: %v, %+v", err, b.status(a))
	}
	b.renew()
	other.Serial = 3
	if turn, _ := b.lock.Decide(other, b.now); turn != follow.TurnTake {
		t.Errorf("another machine, after the renewal: %s", turn)
	}
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, next)
	if got := b.status(a); got.State != report.RevisionCurrent || got.Serial != 3 || len(a.conditions.Conditions()) > 0 {
		t.Errorf("status %+v, conditions %+v", got, a.conditions.Conditions())
	}
}

// TestReadsAreRare: an idle machine reads the revisions once a minute, and at once after a nudge.
func TestReadsAreRare(t *testing.T) {
	b := newFollowBench(t)
	_, f := b.start()
	b.revise(b.boot)
	for range 10 * int(time.Minute/followInterval) {
		if _, err := f.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.now = b.now.Add(followInterval)
	}
	if b.reads != 10 {
		t.Errorf("%d reads in ten minutes", b.reads)
	}
	last := f.nudgeIfChanged("", "a")
	last = f.nudgeIfChanged(last, "a")
	if f.nudgeIfChanged(last, "") != "a" {
		t.Error("the last nudge is forgotten")
	}
	for range 3 {
		if _, err := f.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if b.reads != 11 {
		t.Errorf("%d reads after a nudge", b.reads)
	}
}

// TestKilledAtEveryStep kills the agent before each of its steps (each write of a file, command, restart
// and change of the lock), and its next process after some steps again. The third process ends with the whole new document,
// or with the whole old one if a component does not work with the new one, in the files and in what runs.
func TestKilledAtEveryStep(t *testing.T) {
	for _, bench := range []func(*testing.T) *followBench{newFollowBench, newWorkerBench} {
		template := bench(t)
		for _, broken := range []string{"", node.ComponentKubelet, node.ComponentScheduler} {
			if template.role == v1alpha1.RoleWorker && broken == node.ComponentScheduler {
				continue
			}
			steps := 0
			for finished := false; !finished; steps++ {
				finished = killAtStep(t, template, broken, steps)
			}
			t.Logf("COUNT %s: killed before each of %d steps (broken: %q)", template.role, steps, broken)
			if steps < 10 {
				t.Errorf("only %d steps", steps)
			}
		}
	}
}

// brokenTexts are what components do not start with.
func brokenTexts() map[string]string {
	return map[string]string{
		node.ComponentContainerd: "pause:v2", node.ComponentKubelet: "321Mi", node.ComponentEtcd: "ETCD_HEARTBEAT_INTERVAL=250",
		node.ComponentScheduler: "kube-scheduler:v2",
	}
}

// killAtStep kills the agent before a step, and reports whether it finished before.
func killAtStep(t *testing.T, like *followBench, broken string, step int) bool {
	t.Helper()
	b := newFollowBenchLike(t, like.template)
	b.role = like.role
	b.boot = like.boot
	next := b.nextDocument()
	want := next
	if broken != "" {
		b.broken[broken] = brokenTexts()[broken]
		want = b.boot
	}
	a, f := b.start()
	b.revise(next)
	b.killAfter = step
	_ = b.follow(a, f)
	finished := b.killAfter > 0
	b.killAfter = -1
	b.now = b.now.Add(time.Second)
	a, f = b.start()
	b.killAfter = step * 7 % 23
	_ = b.follow(a, f)
	b.killAfter = -1
	b.now = b.now.Add(time.Second)
	a, f = b.start()
	if err := b.follow(a, f); err != nil {
		t.Fatalf("killed before step %d: %v", step, err)
	}
	b.check(a, want)
	if refused := b.status(a).State == report.RevisionRefused; refused != (broken != "") {
		t.Errorf("status %+v", b.status(a))
	}
	if t.Failed() {
		t.Fatalf("%s killed before step %d, broken: %q", b.role, step, broken)
	}
	return finished
}
