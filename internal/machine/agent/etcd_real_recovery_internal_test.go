// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// recoveryRunner runs etcd and etcdutl, and stops the member of a slot. An agent that is killed runs nothing more.
type recoveryRunner struct {
	*killer
	etcdutl string
	stop    func()
	calls   []string
}

func (r *recoveryRunner) Run(ctx context.Context, name string, args ...string) (string, error) {
	if err := r.effect(); err != nil {
		return "", err
	}
	line := name + " " + strings.Join(args, " ")
	r.calls = append(r.calls, line)
	switch {
	case name == "env":
		return execRunner{}.Run(ctx, name, args...)
	case name == "nice":
		args[2] = r.etcdutl
		return execRunner{}.Run(ctx, name, args...)
	case line == "systemctl stop etcd":
		r.stop()
	}
	return "inactive\n", nil
}

func (s killedStore) Put(ctx context.Context, key string, body []byte) (string, error) {
	if err := s.effect(); err != nil {
		return "", err
	}
	return s.Store.Put(ctx, key, body)
}

// realRecovery is the machine of one slot of a real cluster, which has lost the others.
type realRecovery struct {
	*realCluster
	slot     node.Slot
	agent    *Agent
	store    store.Store
	etcdutl  string
	killer   *killer
	runner   *recoveryRunner
	recovery *etcdRecovery
	member   *etcdMember
	clock    time.Time
}

// newRealRecovery returns the machine of a slot, whose volume is the only one that exists.
func newRealRecovery(t *testing.T, r *realCluster, slot string, s store.Store) *realRecovery {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, as the agent does")
	}
	a := r.tasks[slot].agent
	a.Boot.Slot = slot
	a.instance.Zone = "z"
	a.doc.Etcd.QuorumLoss = v1alpha1.EtcdQuorumLoss{Recovery: v1alpha1.RecoveryAutomatic, After: "10m"}
	a.EC2 = &fakeEC2{volumes: []types.Volume{slotVolume("vol-"+slot, slot, "z", a.instance.ID, time.Now())}}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	a.Sealer = store.NewAgeSealer(id)
	out := &realRecovery{
		realCluster: r, agent: a, store: s, etcdutl: assettest.Program(t, "etcd", "bin/etcdutl"), clock: time.Now(),
		killer: &killer{left: 1 << 30},
	}
	out.slot, _ = a.doc.Slot(slot)
	out.slot.PeerURL = r.manager.Peers[strings.Index("abc", slot)].PeerURL
	a.Now = func() time.Time { return out.clock }
	writeMountinfo(t, a, true)
	out.restartAgent()
	return out
}

// restartAgent starts a new process of the agent, which remembers nothing.
func (r *realRecovery) restartAgent() {
	slot := r.slot.Name
	r.runner = &recoveryRunner{killer: r.killer, etcdutl: r.etcdutl, stop: func() { r.stops[slot]() }}
	r.agent.Run = r.runner
	r.agent.recovery = recoveryMemory{}
	r.agent.etcdFenced.Store(false)
	r.member = &etcdMember{agent: r.agent, slot: r.slot, store: killedStore{r.store, r.killer}, volume: "vol-" + slot}
	r.recovery = r.member.newRecovery()
	r.recovery.program = r.bin
	r.recovery.backup.program = r.bin
	r.recovery.url = r.manager.Peers[strings.Index("abc", slot)].ClientURL
	r.recovery.members = func(context.Context, etcd.Facts) []etcd.Member { return nil }
}

// join records in the store that all members have had data.
func (r *realRecovery) join() {
	r.Helper()
	for _, slot := range []string{"a", "b", "c"} {
		if _, err := r.store.Put(r.Context(), node.EtcdJoinedKey("demo", slot), []byte(`{"volume":"vol-`+slot+`"}`)); err != nil {
			r.Fatal(err)
		}
	}
}

func (r *realRecovery) readReport() etcd.QuorumReport {
	r.Helper()
	report, err := readJSONObject[etcd.QuorumReport](r.Context(), r.store, node.EtcdQuorumReportKey("demo", r.slot.Name))
	if err != nil {
		r.Fatal(err)
	}
	return *report
}

// generation returns the newest generation; nil if there is none.
func (r *realRecovery) generation() *etcd.Generation {
	r.Helper()
	g, err := (&etcdMember{agent: r.agent, store: r.store}).readGeneration(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return g
}

// recover lets the agent look, and restore, until etcd is to be started with restored data. A killed agent is started again.
func (r *realRecovery) recover(number int) {
	r.Helper()
	for range 400 {
		err := r.recovery.run(r.Context())
		if err == nil {
			if g := r.generation(); g != nil && g.Number == number {
				err = r.member.decideAndAct(r.Context())
				if _, waits := errors.AsType[notReadyError](err); waits {
					continue
				}
			}
		}
		if r.killer.left < 0 {
			r.killer = &killer{left: 1 << 30}
			r.restartAgent()
			continue
		}
		if err != nil {
			r.Fatal(err)
		}
		if have, err := r.member.dataGeneration(etcd.DataDir); err == nil && have == number {
			return
		}
		r.clock = r.clock.Add(recoveryInterval)
	}
	r.Fatalf("etcd is not recovered: %+v", r.readReport())
}

// TestRealLostQuorum: two of three real members are lost with their data while a client writes, and the third one is killed too.
// Its agent, which is killed at its effects, recovers every write of its log. The others join again.
func TestRealLostQuorum(t *testing.T) {
	stride := 17 // of the effects; the long form takes each
	if os.Getenv("SLIPWAY_LONG") != "" {
		stride = 1
	}
	c := newRealCluster(t)
	r := newRealRecovery(t, c, "a", store.NewFileStore(t.TempDir()))
	r.join()
	c.lead(1) // so that the survivor learns late what is stored
	acked := writeUntilLost(t, c)
	log := readLog(t, c.dir("a"))
	for _, slot := range []string{"b", "c"} {
		if err := os.RemoveAll(c.dir(slot)); err != nil {
			t.Fatal(err)
		}
	}
	lost := r.clock
	if err := r.recovery.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	report := r.readReport()
	if report.Step != etcd.RecoverWait || !report.DueAt.Equal(lost.Add(10*time.Minute).UTC()) || report.Log.Index == 0 || report.Generation != 1 {
		t.Fatalf("at first: %+v", report)
	}
	r.clock = r.clock.Add(9 * time.Minute)
	r.restartAgent() // the time is not forgotten
	if err := r.recovery.run(t.Context()); err != nil || r.generation() != nil {
		t.Fatalf("too early: %+v, %v", r.generation(), err)
	}
	if report := r.readReport(); !report.LostAt.Equal(lost.UTC()) {
		t.Fatalf("a new process of the agent forgot since when the quorum is missing: %+v", report)
	}
	r.clock = r.clock.Add(time.Minute + recoveryInterval)
	attempts := 0
	number := 2
	for finished := false; !finished; number++ {
		r.killer = &killer{left: attempts * stride}
		r.restartAgent()
		k := r.killer
		r.recover(number)
		finished = k == r.killer
		attempts++
		g := r.generation()
		if g.Recovery == nil || !g.Recovery.Survivor && number == 2 || strings.Join(g.Recovery.Lost, "") != "bc" || g.Slot != "a" {
			t.Fatalf("generation %d: %+v", number, g)
		}
		r.loseQuorumAgain(number)
	}
	number--
	r.killer = &killer{left: 1 << 30}
	r.restartAgent()
	t.Logf("COUNT %d recoveries of a lost quorum of real etcd, killed at every %d. effect", attempts, stride)
	a := c.manager.Peers[0]
	c.start(a, "existing")
	c.await(a)
	r.checkRecovered(acked, log)
	if got, err := c.client(0).Get(t.Context(), "x"); err != nil || got.Header.Revision < etcd.BumpRevision {
		t.Errorf("the revision was not raised: %+v, %v", got, err)
	}
	r.recovery.members = r.recoveredMembers
	if err := r.recovery.run(t.Context()); err != nil || !r.readReport().Quorum {
		t.Errorf("the machine does not report the quorum: %+v, %v", r.readReport(), err)
	}
	for _, slot := range []int{1, 2} {
		c.joinAgain(c.manager.Peers[slot], number, slot)
	}
	checkLastMember(t, c)
	for _, b := range r.backups() {
		if !b.Verified() || b.Reason != backup.ReasonRecovery {
			t.Errorf("backup %+v", b)
		}
	}
}

// readLog returns the write-ahead log of a member that was killed.
func readLog(t *testing.T, dir string) []byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "member/wal/*.wal"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no log in %s: %v", dir, err)
	}
	var out []byte
	for _, name := range names {
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, body...)
	}
	return out
}

// checkRecovered checks that every write that the client was told is stored, and that is in the log of the survivor, was recovered.
// The lost members, a majority, may have stored the last ones alone.
func (r *realRecovery) checkRecovered(acked map[string]string, log []byte) {
	r.Helper()
	client := r.client(0)
	all, err := client.Get(r.Context(), "key", clientv3.WithPrefix())
	if err != nil {
		r.Fatal(err)
	}
	recovered := map[string]string{}
	for _, kv := range all.Kvs {
		recovered[string(kv.Key)] = string(kv.Value)
	}
	lost := 0
	for key, value := range acked {
		if recovered[key] == value && value != "" {
			continue
		}
		if bytes.Contains(log, []byte("\n"+string(rune(len(key)))+key+"\x12")) {
			r.Errorf("%s is in the log of the survivor and was not recovered", key)
		}
		lost++
	}
	r.Logf("COUNT %d writes stored before the loss, %d lost with the other members", len(acked), lost)
	if lost > 5 { // the client has one request at a time
		r.Errorf("%d of %d writes are lost", lost, len(acked))
	}
}

// loseQuorumAgain lets the quorum be lost again after a recovery, when the members of b and c have joined and lost their data again.
func (r *realRecovery) loseQuorumAgain(number int) {
	r.Helper()
	for _, slot := range []string{"b", "c"} {
		key := node.EtcdRestoredKey(r.member.agent.doc.Cluster, number, slot)
		body, err := r.member.agent.signRecord(key, joinedRecord{Volume: "vol-gone-" + slot, Generation: number})
		if err != nil {
			r.Fatal(err)
		}
		if _, err := r.store.Create(r.Context(), key, body); err != nil {
			r.Fatal(err)
		}
	}
	if have, err := r.member.dataGeneration(etcd.DataDir); err != nil || have != number {
		r.Fatalf("the data is of generation %d, want %d: %v", have, number, err)
	}
	r.clock = r.clock.Add(20 * time.Minute)
}

func (r *realRecovery) recoveredMembers(ctx context.Context, _ etcd.Facts) []etcd.Member {
	return r.manager.Members(ctx, "")
}

func (r *realRecovery) backups() []backup.Backup {
	r.Helper()
	l, err := r.recovery.backup.catalog.List(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return l.Backups
}

// writeUntilLost lets a client write through the member of slot a, kills all members meanwhile, and returns what was stored.
func writeUntilLost(t *testing.T, r *realCluster) map[string]string {
	t.Helper()
	acked := map[string]string{}
	client := r.client(0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			key := "key" + strconv.Itoa(i)
			if _, err := client.Put(ctx, key, strings.Repeat("v", 1+i%1000)); err != nil {
				return
			}
			acked[key] = strings.Repeat("v", 1+i%1000)
		}
	}()
	time.Sleep(3 * time.Second)
	for _, slot := range []string{"b", "c", "a"} {
		_ = r.processes[slot].Kill()
	}
	cancel()
	<-done
	for _, stop := range r.stops {
		stop()
	}
	if len(acked) < 100 {
		t.Fatalf("the client wrote %d keys only", len(acked))
	}
	return acked
}

// joinAgain lets a member without data join the recovered cluster, as its agent decides.
func (r *realCluster) joinAgain(peer etcd.Peer, generation, members int) {
	r.Helper()
	f := etcd.Facts{
		Slot: peer.Slot, Slots: []string{"a", "b", "c"}, Volume: "v", Joined: []string{"a", "b"}[:members],
		Generation: &etcd.Generation{Number: generation, Slot: "a"},
	}
	var initial []string
	for _, p := range r.manager.Peers[:members+1] {
		initial = append(initial, "etcd-"+p.Slot+"="+p.PeerURL)
	}
	r.initial = strings.Join(initial, ",")
	eventually(r.T, "the member joins", func() error {
		f.Members = r.manager.Members(r.Context(), peer.Slot)
		f.Comparison = etcd.Comparison{Equal: true}
		switch action := etcd.Decide(f); action.Type {
		case etcd.ActionAddLearner:
			var err error
			f.Added, err = r.manager.AddLearner(r.Context(), peer.Slot, peer.PeerURL)
			return errors.Join(errors.New(action.Reason), err)
		case etcd.ActionStartJoining:
			r.start(peer, "existing")
			return nil
		default:
			return errors.New(action.Reason)
		}
	})
	eventually(r.T, "the learner is promoted", func() error {
		s, err := r.manager.Status(r.Context(), peer.ClientURL)
		if err != nil {
			return err
		}
		return r.manager.PromoteLearner(r.Context(), peer.Slot, s.MemberID)
	})
}
