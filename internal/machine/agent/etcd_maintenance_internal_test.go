// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// maintenance returns the task that maintains the member.
func (r *realMember) maintenance() *etcdMaintenance {
	w := r.backup.member.newMaintenance()
	w.url = r.backup.url
	w.now = func() time.Time { return r.now }
	list, err := r.client.MemberList(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	w.manager = func() etcd.Manager {
		m := r.agent.newEtcdManager()
		m.Peers[0].PeerURL = list.Members[0].PeerURLs[0]
		return m
	}
	return w
}

// useSmallQuota makes the etcd that program returns start with a quota of its own. The agent's settings have 8 GiB in a
// variable, and etcd does not start if a flag contradicts a variable.
func useSmallQuota(t *testing.T, quota int64) {
	t.Helper()
	etcdPath := assettest.Program(t, "etcd", "bin/etcd")
	cache := t.TempDir()
	bin := filepath.Join(cache, "assets/work/etcd-0123456789abcdef/bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nETCD_QUOTA_BACKEND_BYTES=%d exec '%s' \"$@\"\n", quota, etcdPath)
	if err := os.WriteFile(filepath.Join(bin, "etcd"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(filepath.Dir(etcdPath), "etcdutl"), filepath.Join(bin, "etcdutl")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLIPWAY_CACHE", cache)
}

// TestRealFullDatabase fills a real etcd until it refuses writes. When the keys are deleted, the agent makes space and permits
// writes again.
func TestRealFullDatabase(t *testing.T) {
	const quota = 32 << 20
	useSmallQuota(t, quota)
	r := newRealMember(t)
	if s, err := r.client.Status(t.Context(), r.backup.url); err != nil || s.DbSizeQuota != quota {
		t.Fatalf("the quota is not %d: %+v, %v", quota, s, err)
	}
	w := r.maintenance()
	r.now = time.Unix(r.now.Unix()/60*60, 0)
	value := strings.Repeat("v", 1<<20)
	var full error
	for i := 0; i < 60 && full == nil; i++ {
		_, full = r.client.Put(t.Context(), "key"+strconv.Itoa(i), value)
	}
	if full == nil || !strings.Contains(full.Error(), "space exceeded") {
		t.Fatalf("the database does not become full: %v", full)
	}
	if _, err := r.client.Delete(t.Context(), "key", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	for range 60 { // ten minutes
		if err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.now = r.now.Add(10 * time.Second)
	}
	if err := w.manager().Compact(t.Context(), r.backup.url, 2); err != nil {
		t.Errorf("what was compacted already is no error: %v", err)
	}
	if _, err := r.client.Put(t.Context(), "key", "value"); err != nil {
		t.Fatalf("etcd still refuses writes: %v (%s)", err, w.reason)
	}
	status, err := r.client.Status(t.Context(), r.backup.url)
	if err != nil || status.DbSize > 30<<20 || len(status.Errors) > 0 {
		t.Errorf("%+v, %v", status, err)
	}
}

// realCluster is three real etcd members without TLS, each with the agent that maintains it.
type realCluster struct {
	*testing.T
	bin     string
	manager etcd.Manager
	initial string
	stops   map[string]func()
	// processes are the running members by slot.
	processes map[string]*os.Process
	tasks     map[string]*etcdMaintenance
	now       time.Time
	// corruptCheck is the time between two comparisons of the members.
	corruptCheck string
}

func newRealCluster(t *testing.T) *realCluster {
	t.Helper()
	r := &realCluster{
		T: t, bin: assettest.Program(t, "etcd", "bin/etcd"), stops: map[string]func(){}, tasks: map[string]*etcdMaintenance{}, now: time.Now(),
		processes: map[string]*os.Process{}, corruptCheck: "1s",
	}
	ports := freePorts(t, 6)
	var initial []string
	for i, slot := range []string{"a", "b", "c"} {
		peer := etcd.Peer{Slot: slot, ClientURL: "http://127.0.0.1:" + ports[i], PeerURL: "http://127.0.0.1:" + ports[3+i]}
		r.manager.Peers = append(r.manager.Peers, peer)
		initial = append(initial, "etcd-"+slot+"="+peer.PeerURL)
	}
	r.initial = strings.Join(initial, ",")
	bundle := testBundle(t)
	for _, peer := range r.manager.Peers {
		a := testAgent(t)
		a.doc = testDocument(t, 3, bundle)
		a.bundle = bundle
		slot, _ := a.doc.Slot(peer.Slot)
		a.Run = stopRunner{stop: func() { r.stops[peer.Slot]() }}
		w := (&etcdMember{agent: a, slot: slot}).newMaintenance()
		w.url, w.now, w.manager = peer.ClientURL, func() time.Time { return r.now }, func() etcd.Manager { return r.manager }
		r.tasks[peer.Slot] = w
		if err := a.Root.MakeDir(etcd.DataMount, 0o700, 0); err != nil {
			t.Fatal(err)
		}
		r.start(peer, "new")
	}
	for _, peer := range r.manager.Peers {
		r.await(peer)
	}
	return r
}

// stopRunner stops a member instead of its unit.
type stopRunner struct{ stop func() }

func (s stopRunner) Run(_ context.Context, name string, args ...string) (string, error) {
	if line := name + " " + strings.Join(args, " "); line != "systemctl stop etcd" {
		return "", errors.New("not expected: " + line)
	}
	s.stop()
	return "", nil
}

func (r *realCluster) await(peer etcd.Peer) {
	r.Helper()
	eventually(r.T, "etcd-"+peer.Slot+" answers", func() error {
		if !r.manager.Healthy(r.Context(), peer.ClientURL) {
			return errors.New("not healthy")
		}
		return nil
	})
}

func (r *realCluster) start(peer etcd.Peer, state string) {
	r.Helper()
	process := run(r.T, "etcd", r.bin, []string{
		"--name=etcd-" + peer.Slot, "--data-dir=" + r.dir(peer.Slot), "--listen-client-urls=" + peer.ClientURL,
		"--advertise-client-urls=" + peer.ClientURL, "--listen-peer-urls=" + peer.PeerURL,
		"--initial-advertise-peer-urls=" + peer.PeerURL, "--initial-cluster=" + r.initial, "--initial-cluster-state=" + state,
		"--corrupt-check-time=" + r.corruptCheck, "--feature-gates=CompactHashCheck=true",
	}, nil)
	r.processes[peer.Slot] = process
	r.stops[peer.Slot] = func() {
		_ = process.Kill()
		eventually(r.T, "etcd ends", func() error {
			if r.manager.Ping(r.Context(), peer.ClientURL) == nil {
				return errors.New("it answers")
			}
			return nil
		})
	}
}

func (r *realCluster) dir(slot string) string { return r.tasks[slot].agent.Root.Path(etcd.DataDir) }

func (r *realCluster) client(slot int) *clientv3.Client {
	r.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{r.manager.Peers[slot].ClientURL}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = c.Close() })
	return c
}

// damage changes a value in the database of a member that is stopped.
func (r *realCluster) damage(slot string) {
	r.Helper()
	file := filepath.Join(r.dir(slot), "member/snap/db")
	body, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(body, []byte("damage-me")) {
		r.Fatalf("the value is not in the database: %v", err)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(body, []byte("damage-me"), []byte("damagedXX")), 0o600); err != nil {
		r.Fatal(err)
	}
}

// maintain lets every agent look once, and returns the first error.
func (r *realCluster) maintain() error {
	for _, peer := range r.manager.Peers {
		if err := r.tasks[peer.Slot].run(r.Context()); err != nil {
			return err
		}
	}
	return nil
}

// TestRealCorruptMember damages the database of one of three real members. Its agent sets the data aside, the member joins
// again as a learner, and the alarm is disarmed.
func TestRealCorruptMember(t *testing.T) {
	r := newRealCluster(t)
	first := r.client(0)
	for i := range 20 {
		if _, err := first.Put(t.Context(), "key"+strconv.Itoa(i), "damage-me"); err != nil {
			t.Fatal(err)
		}
	}
	c := r.manager.Peers[2]
	time.Sleep(time.Second) // the database is written every 100 ms
	r.stops["c"]()
	r.damage("c")
	r.start(c, "existing")
	r.await(c)
	eventually(t, "the agent sets the damaged data aside", func() error {
		if err := r.maintain(); err != nil {
			return err
		}
		if !r.tasks["c"].agent.etcdFenced.Load() {
			return fmt.Errorf("still used: %s", r.tasks["c"].reason)
		}
		return nil
	})
	root := r.tasks["c"].agent.Root
	if !root.Exists(corruptDir+"/member") || root.Exists(etcd.DataDir+"/member") {
		t.Error("the data was not moved")
	}
	for _, slot := range []string{"a", "b"} {
		if r.tasks[slot].agent.etcdFenced.Load() {
			t.Fatalf("member %s, whose data is right, was stopped", slot)
		}
	}

	r.rejoin(c)
	eventually(t, "the alarm is disarmed", func() error {
		if err := r.maintain(); err != nil {
			return err
		}
		_, err := first.Put(t.Context(), "after", "value")
		return err
	})
	got, err := r.client(2).Get(t.Context(), "key3")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "damage-me" {
		t.Errorf("the data of the member that joined again: %+v, %v", got, err)
	}
}

// rejoin lets a member without data join as the agent does: each step is what etcd.Decide says.
func (r *realCluster) rejoin(peer etcd.Peer) {
	r.Helper()
	f := etcd.Facts{
		Slot: peer.Slot, Slots: []string{"a", "b", "c"}, Volume: "v", Joined: []string{"a", "b", "c"}, Marker: &etcd.BootstrapMarker{},
	}
	eventually(r.T, "the member joins again", func() error {
		f.Members = r.manager.Members(r.Context(), peer.Slot)
		f.Comparison = etcd.Comparison{}
		if f.NeedsComparison() {
			if err := r.maintain(); err != nil { // the leader's agent disarms the alarm
				return err
			}
			f.Comparison = r.manager.Compare(r.Context(), peer.Slot)
		}
		action := etcd.Decide(f)
		switch action.Type {
		case etcd.ActionRemoveMember:
			return errors.Join(errors.New(action.Reason), r.manager.RemoveMember(r.Context(), peer.Slot, action.MemberID))
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
	r.tasks[peer.Slot].agent.etcdFenced.Store(false)
	eventually(r.T, "the learner is promoted", func() error {
		s, err := r.manager.Status(r.Context(), peer.ClientURL)
		if err != nil {
			return err
		}
		return r.manager.PromoteLearner(r.Context(), peer.Slot, s.MemberID)
	})
}

// TestNoteRevision: the history of the last minute is kept.
func TestNoteRevision(t *testing.T) {
	var w etcdMaintenance
	start := time.Unix(1000, 0)
	for i := range 20 {
		want := int64(0)
		if i >= 6 {
			want = int64(100 + i - 6)
		}
		if got := w.noteRevision(start.Add(time.Duration(i)*10*time.Second), int64(100+i)); got != want {
			t.Fatalf("after %d s: revision %d, want %d", i*10, got, want)
		}
	}
	if len(w.seen) > 8 {
		t.Errorf("remembers %d revisions", len(w.seen))
	}
}

// TestSyncHistory: a disk is judged after five minutes.
func TestSyncHistory(t *testing.T) {
	var h syncHistory
	at := time.Unix(1000, 0)
	for i := range 40 {
		n := uint64(i * 50)
		h.note(at.Add(time.Duration(i)*10*time.Second), etcd.SyncCounts{{Bound: 8 * time.Millisecond, Count: n / 2}, {Bound: time.Second, Count: n}})
		if got := h.slowest(); i < 30 && got != 0 || i >= 30 && got != time.Second {
			t.Fatalf("after %d s: %s", i*10, got)
		}
	}
	if len(h.samples) > 32 {
		t.Errorf("remembers %d samples", len(h.samples))
	}
}
