// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// killer counts the effects of an agent, and kills it at one of them. An agent may have several at the same time.
type killer struct {
	mu   sync.Mutex
	left int
}

func (k *killer) effect() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left--; k.left < 0 {
		return errKilled
	}
	return nil
}

// killedStore is a store that an agent uses until it is killed.
type killedStore struct {
	store.Store
	*killer
}

func (s killedStore) Get(ctx context.Context, key string) (store.Object, error) {
	if err := s.effect(); err != nil {
		return store.Object{}, err
	}
	return s.Store.Get(ctx, key)
}

func (s killedStore) Create(ctx context.Context, key string, body []byte) (string, error) {
	if err := s.effect(); err != nil {
		return "", err
	}
	return s.Store.Create(ctx, key, body)
}

func (s killedStore) List(ctx context.Context, prefix string) ([]string, error) {
	if err := s.effect(); err != nil {
		return nil, err
	}
	return s.Store.List(ctx, prefix)
}

// killedRunner runs etcdutl, and no other program of this machine.
type killedRunner struct {
	*killer
	calls   []string
	etcdutl string // its path here
}

func (r *killedRunner) Run(ctx context.Context, name string, args ...string) (string, error) {
	if err := r.effect(); err != nil {
		return "", err
	}
	r.calls = append(r.calls, name+" "+strings.Join(args, " "))
	if name == "nice" {
		args[2] = r.etcdutl
		return execRunner{}.Run(ctx, name, args...)
	}
	return "inactive\n", nil
}

// TestRealRestore restores a backup of a real etcd member, with the agent killed at each effect, and starts a real etcd with
// the result.
func TestRealRestore(t *testing.T) {
	r := newRealMember(t)
	if _, err := r.client.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	lease, err := r.client.Grant(t.Context(), 15)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Put(t.Context(), apiServerKey, "value", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	r.run()
	taken := r.list()[0]
	later, err := r.client.Put(t.Context(), "later", "value")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Delete(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	r.stop()

	a := r.agent
	a.EC2 = &fakeEC2{volumes: []types.Volume{slotVolume("vol-1", "a", "z", "i-me", time.Now())}}
	writeMountinfo(t, a, true)
	attempts, number := 0, 1
	stride := 7 // of the effects; the long form takes each
	if os.Getenv("SLIPWAY_LONG") != "" {
		stride = 1
	}
	for finished := false; !finished; attempts++ {
		number++
		g := etcd.Generation{Number: number, Token: "t" + taken.ID, Backup: taken.ID, Slot: "a"}
		signGeneration(t, a, r.store, g)
		finished = r.restoreKilledAt(attempts * stride)
		member := &etcdMember{agent: a}
		if got, err := member.dataGeneration(etcd.DataDir); err != nil || got != number {
			t.Fatalf("generation %d: the data is of %d: %v", number, got, err)
		}
		if got, err := r.backup.tool.inspect(t.Context(), a.Root.Path(etcd.DataDir+"/member/snap/db")); err != nil ||
			got.Revision < etcd.BumpRevision {
			t.Fatalf("generation %d: %+v, %v", number, got, err)
		}
		if a.Root.Exists(restoredDir) || !a.Root.Exists(asideDir+"/member") {
			t.Fatal("the restored database was not moved, or the earlier data is not kept")
		}
	}
	t.Logf("COUNT %d restorations of a real database, killed at every %d. effect", attempts, stride)

	r.start()
	slot, _ := a.doc.Slot("a")
	want := etcd.Generation{Token: "t" + taken.ID}.ClusterID(slot.PeerURL)
	if list, err := r.client.MemberList(t.Context()); err != nil || list.Header.ClusterId != want {
		t.Errorf("its members count as those of another cluster: %+v, %v, want cluster %x", list, err, want)
	}
	got, err := r.client.Get(t.Context(), "key")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" {
		t.Errorf("the deleted key: %+v, %v", got, err)
	}
	if got, err := r.client.Get(t.Context(), "later"); err != nil || len(got.Kvs) != 0 {
		t.Errorf("the key of after the backup: %+v, %v", got, err)
	}
	if got != nil && got.Header.Revision <= later.Header.Revision+100 {
		t.Errorf("revision %d is not above those that clients have seen", got.Header.Revision)
	}
	watched := r.client.Watch(t.Context(), "key", watchFrom(later.Header.Revision))
	if event := <-watched; event.CompactRevision == 0 {
		t.Errorf("a watch of before the restoration continues: %+v", event)
	}
	r.awaitExpiry()
}

// apiServerKey is one by which API servers tell each other that they serve, and from which the addresses of the Service kubernetes
// are made. It has a lease of 15 s.
const apiServerKey = "/registry/masterleases/10.0.0.4"

// awaitExpiry waits until a key that a backup brought back with its lease ends: nobody has to delete it.
func (r *realMember) awaitExpiry() {
	r.Helper()
	begin := time.Now()
	for time.Since(begin) < time.Minute {
		got, err := r.client.Get(r.Context(), apiServerKey)
		if err == nil && len(got.Kvs) == 0 {
			r.Logf("COUNT the address of an API server of before the restoration ended after %s", time.Since(begin).Round(time.Second))
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	r.Error("the address of an API server that does not exist stays")
}

// restoreKilledAt lets an agent restore, kills it at an effect, and lets the next one finish. It reports whether the first
// one was not killed.
func (r *realMember) restoreKilledAt(effect int) bool {
	r.Helper()
	slot, _ := r.agent.doc.Slot("a")
	k := &killer{left: effect}
	killed := false
	for range 40 {
		runner := &killedRunner{killer: k, etcdutl: r.backup.tool.program}
		r.agent.Run = runner
		m := &etcdMember{agent: r.agent, slot: slot, store: killedStore{r.store, k}, volume: "vol-1"}
		err := m.decideAndAct(r.Context())
		if _, waits := errors.AsType[notReadyError](err); waits {
			continue
		}
		if err != nil && k.left >= 0 {
			r.Fatal(err)
		}
		if err == nil && k.left >= 0 {
			if !strings.Contains(strings.Join(runner.calls, "\n"), "systemctl start --no-block etcd") {
				r.Fatalf("etcd was not started: %q", runner.calls)
			}
			return !killed
		}
		killed = true
		k = &killer{left: 1000}
	}
	r.Fatal("the restoration does not end")
	return false
}

// signGeneration begins a restoration as an operator does.
func signGeneration(t *testing.T, a *Agent, s store.Store, g etcd.Generation) {
	t.Helper()
	key := node.EtcdGenerationKey(a.doc.Cluster, g.Number)
	body, err := a.signRecord(key, g)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := s.Create(t.Context(), key, body); err != nil {
		t.Fatal(err)
	}
}

// TestOldDataIsFenced: a member with data of before a restoration does not start, and starts if the store does not answer.
func TestOldDataIsFenced(t *testing.T) {
	a := testAgent(t)
	slot, _ := a.doc.Slot("a")
	s := store.NewFileStore(t.TempDir())
	k := &killer{left: 1000}
	runner := &killedRunner{killer: k}
	a.Run = runner
	if err := a.Root.MakeDir(etcd.DataDir+"/member", 0o700, 0); err != nil {
		t.Fatal(err)
	}
	m := &etcdMember{agent: a, slot: slot, store: s, volume: "vol-1"}
	if err := m.watchGeneration(t.Context()); err != nil || len(runner.calls) > 0 {
		t.Fatalf("without a restoration: %v, %q", err, runner.calls)
	}
	signGeneration(t, a, s, etcd.Generation{Number: 2, Slot: "b", Backup: "b1", Token: "t"})

	m.store = killedStore{s, &killer{}}
	if f, err := m.gatherFacts(t.Context()); err != nil || etcd.Decide(f).Type != etcd.ActionStartExisting {
		t.Errorf("the store does not answer: %+v, %v", f, err)
	}

	m.store = s
	if f, err := m.gatherFacts(t.Context()); err != nil || etcd.Decide(f).Type != etcd.ActionSetAside {
		t.Errorf("the store answers: %+v, %v", f, err)
	}
	err := m.decideAndAct(t.Context())
	if _, waits := errors.AsType[notReadyError](err); !waits || !a.etcdFenced.Load() || m.hasData() {
		t.Errorf("the old data is still used: %v", err)
	}
	if want := "systemctl stop etcd"; len(runner.calls) != 1 || runner.calls[0] != want {
		t.Errorf("ran %q, want %s", runner.calls, want)
	}
	if found, _ := filepath.Glob(a.Root.Path(asideDir) + "/member"); len(found) != 1 {
		t.Error("the old data was not kept")
	}
	if units := a.ownedUnits(); strings.Contains(strings.Join(units, " "), "etcd") {
		t.Errorf("the agent starts etcd again: %q", units)
	}
}

// TestStepAsideContinues: an agent that is killed while it sets wrong data aside continues, and the data is kept.
func TestStepAsideContinues(t *testing.T) {
	a := testAgent(t)
	slot, _ := a.doc.Slot("a")
	if err := a.Root.MakeDir(etcd.DataDir+"/member", 0o700, 0); err != nil {
		t.Fatal(err)
	}
	m := &etcdMember{agent: a, slot: slot, store: store.NewFileStore(t.TempDir()), volume: "vol-1"}

	a.Run = &killedRunner{killer: &killer{}} // at once: when it stops etcd
	if err := m.stepAside(t.Context(), corruptDir, "test"); err == nil || !m.hasData() || !a.Root.Exists(stepAsideMark) {
		t.Fatalf("killed while etcd is stopped: %v", err)
	}

	a.Run = &killedRunner{killer: &killer{left: 1000}}
	if err := m.finishStepAside(t.Context(), "test"); err != nil || m.hasData() || a.Root.Exists(stepAsideMark) {
		t.Errorf("the next agent starts the wrong data: %v", err)
	}

	// Killed before the mark was removed: the data that was set aside is not replaced by nothing.
	if _, err := a.Root.Write(File{Path: stepAsideMark, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if err := m.finishStepAside(t.Context(), "test"); err != nil || a.Root.Exists(stepAsideMark) {
		t.Errorf("the step does not end: %v", err)
	}
	if found, _ := filepath.Glob(a.Root.Path(corruptDir) + "/member"); len(found) != 1 {
		t.Error("the data that was set aside is lost")
	}
}

// TestLearnerStepsAside: the data of a learner whose etcd ends at each start is set aside, and the member is added anew, with another id:
// the leader knows what the former one has confirmed. An agent that is killed meanwhile continues. Other data that was set aside is kept.
func TestLearnerStepsAside(t *testing.T) {
	a := testAgent(t)
	slot, _ := a.doc.Slot("a")
	for _, dir := range []string{etcd.DataDir + "/member", corruptDir + "/member"} {
		if err := a.Root.MakeDir(dir, 0o700, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := recordAdded(a.Root, 7); err != nil {
		t.Fatal(err)
	}
	m := &etcdMember{agent: a, slot: slot, store: store.NewFileStore(t.TempDir()), volume: "vol-1"}
	w := m.newMaintenance()
	if facts, err := w.gather(etcd.Survey{}); err != nil || facts.CopiedAgain {
		t.Fatalf("%+v, %v", facts, err)
	}

	step := etcd.Maintenance{Type: etcd.MaintainStepAside, Learner: true}
	a.Run = &killedRunner{killer: &killer{}} // at once: when it stops etcd
	if err := w.carryOut(t.Context(), etcd.Manager{}, step); err == nil || !m.hasData() {
		t.Fatalf("killed while etcd is stopped: %v", err)
	}
	a.Run = &killedRunner{killer: &killer{left: 1000}}
	if err := m.finishStepAside(t.Context(), "test"); err != nil || m.hasData() || readAdded(a.Root) != 0 {
		t.Errorf("etcd may start again with the former id: %v", err)
	}
	for _, dir := range []string{etcd.LearnerAsideDir, corruptDir} {
		if !a.Root.Exists(dir + "/member") {
			t.Errorf("%s has no data", dir)
		}
	}
	if facts, err := w.gather(etcd.Survey{}); err != nil || !facts.CopiedAgain {
		t.Errorf("it would be set aside again: %v", err)
	}
	if err := a.Root.MakeDir(etcd.DataDir+"/member", 0o700, 0); err != nil {
		t.Fatal(err)
	}
	if err := m.moveAside(asideDir, "a restoration"); err != nil || a.Root.Exists(etcd.LearnerAsideDir) {
		t.Errorf("data of another time counts: %v", err)
	}
}
