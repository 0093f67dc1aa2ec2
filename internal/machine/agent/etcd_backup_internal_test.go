// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// realMember is one real etcd member with the flags and certificates of a machine, and the agent's task for its backups.
type realMember struct {
	*testing.T
	agent  *Agent
	backup *etcdBackup
	client *clientv3.Client
	store  store.Store
	now    time.Time
	// start starts etcd, and stop kills it.
	start, stop func()
	// process is etcd's, and peerURL where it listens for other members.
	process *os.Process
	peerURL string
}

// newRealMember starts a member.
func newRealMember(t *testing.T) *realMember {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, as the agent does")
	}
	bin := assettest.Program(t, "etcd", "bin/etcd")
	tool := assettest.Program(t, "etcd", "bin/etcdutl")
	a := testAgent(t)
	if _, err := a.writeControlPlane(); err != nil {
		t.Fatal(err)
	}
	m := mapMachine(t, a.Root.Dir)
	slot, _ := a.doc.Slot("a")
	s := store.NewFileStore(t.TempDir())
	member := &etcdMember{agent: a, slot: slot, store: s}
	env := m.Replace(string(etcd.RenderEnvironment(etcd.StartOptions{
		Members: member.initialCluster(), Token: "t", NewCluster: true, AllowEmptyData: true,
	}))) + string(etcd.RenderSettings(etcd.Config{}))
	flags := m.Replace(strings.Join(etcd.Flags(etcd.Config{Name: slot.Member, Host: slot.Host, PeerHosts: []string{slot.Host}}), "\n"))
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	a.Sealer = store.NewAgeSealer(id)
	a.Run = execRunner{}
	a.apiOpen.Store(true)
	r := &realMember{T: t, agent: a, store: s, now: time.Now()}
	r.backup = newEtcdBackup(member)
	r.backup.now = func() time.Time { return r.now }
	r.backup.tool.program = tool
	r.backup.program = bin
	r.backup.url = m.Replace(etcd.ClientURL)
	r.peerURL = m.Replace("https://" + slot.Host + ":2380")
	manager := a.newEtcdManager()
	r.start = func() {
		process := run(t, "etcd", bin, strings.Split(flags, "\n"), strings.Split(strings.TrimSpace(env), "\n"))
		r.process = process
		r.stop = func() {
			_ = process.Kill()
			eventually(t, "etcd ends", func() error {
				if manager.Ping(t.Context(), r.backup.url) == nil {
					return errors.New("it answers")
				}
				return nil
			})
		}
		eventually(t, "etcd answers", func() error { return manager.Ping(t.Context(), r.backup.url) })
	}
	r.start()
	r.client, err = clientv3.New(clientv3.Config{Endpoints: []string{r.backup.url}, TLS: manager.TLS})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.client.Close() })
	return r
}

// watchFrom begins a watch at a revision.
func watchFrom(revision int64) clientv3.OpOption { return clientv3.WithRev(revision) }

func (r *realMember) run() {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	if err := r.backup.run(ctx); err != nil {
		r.Fatal(err)
	}
}

func (r *realMember) list() []backup.Backup {
	r.Helper()
	l, err := r.backup.catalog.List(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return l.Backups
}

// TestRealBackups takes, tests and expires backups of a real etcd member.
func TestRealBackups(t *testing.T) {
	r := newRealMember(t)
	for i := range 50 {
		if _, err := r.client.Put(t.Context(), "key"+strconv.Itoa(i), strings.Repeat("value", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	lease, err := r.client.Grant(t.Context(), 3600) // as Kubernetes' events have
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Put(t.Context(), "key8", "leased", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	deleted, err := r.client.Delete(t.Context(), "key7")
	if err != nil {
		t.Fatal(err)
	}
	r.run()
	first := r.list()
	if said := first[0].Said; said.HashKV == 0 || said.Keys != 49 || said.Revision != first[0].Revision ||
		first[0].Verification.Restored != said {
		t.Errorf("the member said %+v, the restored etcd %+v", said, first[0].Verification.Restored)
	}
	if len(first) != 1 || !first[0].Verified() || !first[0].Verification.HashCompared || first[0].Keys != 49 || first[0].Revision != deleted.Header.Revision ||
		first[0].Member != "etcd-a" || first[0].Reason != backup.ReasonSchedule || first[0].EtcdVersion == "" {
		t.Fatalf("the first backup: %+v", first)
	}
	r.checkNoPlainText()

	r.now = r.now.Add(30 * time.Minute)
	r.run()
	if l := r.list(); len(l) != 1 {
		t.Fatalf("a backup before it was due: %+v", l)
	}
	r.now = r.now.Add(31 * time.Minute)
	r.run()
	if l := r.list(); len(l) != 2 || l[1].Verification != nil || l[1].Said != (backup.Contents{}) {
		t.Fatalf("the second backup: %+v", l)
	}

	r.damageNewest()
	if err := r.backup.verify(t.Context(), r.list()[1].Metadata); err != nil {
		t.Fatal(err)
	}
	if l := r.list(); l[1].Verification == nil || l[1].Verification.OK || !strings.Contains(l[1].Verification.Error, "damaged") {
		t.Fatalf("a damaged backup: %+v", l[1].Verification)
	}

	r.now = r.now.Add(100 * 24 * time.Hour)
	r.agent.doc.Etcd.Backup = v1alpha1.EtcdBackup{Interval: "5m", KeepAll: "5m", KeepDaily: 1, VerifyEvery: 1}
	for range 5 {
		r.run()
		r.now = r.now.Add(5 * time.Minute)
	}
	for _, b := range r.list() {
		if r.now.Sub(b.TakenAt) > time.Hour {
			t.Errorf("backup of %s was not deleted", b.TakenAt)
		}
	}
}

// TestBackupsAreOnTime: a backup is at most a quarter of its interval late, and the backups are listed once a minute at least.
func TestBackupsAreOnTime(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{
		24 * time.Hour:   time.Minute,
		4 * time.Minute:  time.Minute,
		time.Minute:      15 * time.Second,
		30 * time.Second: 7500 * time.Millisecond,
	} {
		if got := backupLookInterval(backup.Policy{Interval: interval}); got != want {
			t.Errorf("every %s: the backups are listed every %s, want %s", interval, got, want)
		}
	}
}

// TestBackupCost measures what a backup costs a member with 50 and with 500 MiB: its time, and the time of writes next to it.
func TestBackupCost(t *testing.T) {
	if os.Getenv("SLIPWAY_BENCH") == "" {
		t.Skip("SKIPPED: a benchmark: make bench")
	}
	r := newRealMember(t)
	const value = 64 << 10
	keys := 0
	for _, mib := range []int{50, 500} {
		for ; keys < mib<<20/value; keys++ {
			if _, err := r.client.Put(t.Context(), fmt.Sprintf("key-%06d", keys), rand.Text()+strings.Repeat("value", value/5)); err != nil {
				t.Fatal(err)
			}
		}
		quiet := r.slowestWrites(func() { time.Sleep(5 * time.Second) })
		var took, tested time.Duration
		var taken backup.Metadata
		busy := r.slowestWrites(func() {
			start := time.Now()
			var err error
			if taken, err = r.backup.take(t.Context(), backup.Metadata{Reason: backup.ReasonSchedule}); err != nil {
				t.Error(err)
			}
			took = time.Since(start)
			if err := r.backup.verify(t.Context(), taken); err != nil {
				t.Error(err)
			}
			tested = time.Since(start) - took
		})
		t.Logf("COUNT a backup of %d MiB: taken in %s, tested in %s; 99 of 100 writes within %s next to it, %s without",
			taken.DBSize>>20, took.Round(time.Millisecond), tested.Round(time.Millisecond), busy, quiet)
		r.now = r.now.Add(time.Hour)
	}
}

// TestHashCost measures how long writes wait while a member hashes its keys and values, and while it answers other reads.
func TestHashCost(t *testing.T) {
	if os.Getenv("SLIPWAY_BENCH") == "" {
		t.Skip("SKIPPED: a benchmark: make bench")
	}
	r := newRealMember(t)
	const value = 64 << 10
	var revision int64
	for i := range 300 << 20 / value {
		put, err := r.client.Put(t.Context(), fmt.Sprintf("key-%06d", i), rand.Text()+strings.Repeat("value", value/5))
		if err != nil {
			t.Fatal(err)
		}
		revision = put.Header.Revision
	}
	_, quiet := r.timeWrites(func() { time.Sleep(5 * time.Second) })
	for range 3 {
		start := time.Now()
		var took time.Duration
		_, slowest := r.timeWrites(func() {
			if _, err := r.agent.newEtcdManager().KeyValuesAt(t.Context(), r.backup.url, revision); err != nil {
				t.Error(err)
			}
			took = time.Since(start)
		})
		t.Logf("COUNT the hash of 300 MiB took %s; the slowest write next to it %s, without it %s",
			took.Round(time.Millisecond), slowest, quiet)
	}
}

// slowestWrites writes to etcd while do runs, and returns the time within which 99 of 100 writes were acknowledged.
func (r *realMember) slowestWrites(do func()) time.Duration {
	r.Helper()
	most, _ := r.timeWrites(do)
	return most
}

// timeWrites writes to etcd while do runs. It returns the time within which 99 of 100 writes were acknowledged, and that of all.
func (r *realMember) timeWrites(do func()) (most, all time.Duration) {
	r.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); do() }()
	var took []time.Duration
	for {
		select {
		case <-ended:
			slices.Sort(took)
			return took[len(took)*99/100].Round(100 * time.Microsecond), took[len(took)-1].Round(100 * time.Microsecond)
		default:
		}
		start := time.Now()
		if _, err := r.client.Put(r.Context(), "write", "value"); err != nil {
			r.Error(err)
		}
		took = append(took, time.Since(start))
		time.Sleep(5 * time.Millisecond)
	}
}

// checkNoPlainText looks for keys of etcd in the store and in the directory for snapshots.
func (r *realMember) checkNoPlainText() {
	r.Helper()
	keys, err := r.store.List(r.Context(), "")
	if err != nil {
		r.Fatal(err)
	}
	for _, key := range keys {
		o, err := r.store.Get(r.Context(), key)
		if err != nil || bytes.Contains(o.Body, []byte("valuevalue")) {
			r.Errorf("%s has plain data of etcd: %v", key, err)
		}
	}
	if left, _ := filepath.Glob(r.agent.Root.Path(backupDir) + "/*"); len(left) > 0 {
		r.Errorf("left behind: %v", left)
	}
}

func (r *realMember) damageNewest() {
	r.Helper()
	l := r.list()
	key := backup.Key("demo", l[len(l)-1].ID, "part-00000")
	o, err := r.store.Get(r.Context(), key)
	if err != nil {
		r.Fatal(err)
	}
	o.Body[len(o.Body)/2] ^= 1
	if _, err := r.store.Put(r.Context(), key, o.Body); err != nil {
		r.Fatal(err)
	}
}

// TestRealVerificationComparesContents tests a backup whose metadata promises other contents, and one whose snapshot was cut.
func TestRealVerificationComparesContents(t *testing.T) {
	r := newRealMember(t)
	if _, err := r.client.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*backup.Metadata)
		want   string
	}{
		"keys":     {func(m *backup.Metadata) { m.Keys++ }, "keys instead of"},
		"hash":     {func(m *backup.Metadata) { m.HashKV++ }, "hash"},
		"member":   {func(m *backup.Metadata) { m.Said.HashKV++ }, "served by etcd: the restored database has revision"},
		"revision": {func(m *backup.Metadata) { m.Revision++ }, "has revision"},
	} {
		m, err := r.backup.take(t.Context(), backup.Metadata{Reason: name})
		if err != nil {
			t.Fatal(err)
		}
		c.change(&m)
		if err := r.backup.verify(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		l := r.list()
		if v := l[len(l)-1].Verification; v == nil || v.OK || !strings.Contains(v.Error, c.want) {
			t.Errorf("%s: %+v", name, v)
		}
		r.now = r.now.Add(time.Minute)
	}
	full := filepath.Join(t.TempDir(), "s.db")
	if _, err := writeSnapshotOf(t.Context(), r.agent.newEtcdManager(), r.backup.url, full); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(full)
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.backup.archive.Upload(t.Context(), backup.NewID(r.now, "cut"), bytes.NewReader(body[:len(body)-4096]))
	if err != nil {
		t.Fatal(err)
	}
	result, err := r.backup.testRestore(t.Context(), m, t.TempDir())
	if err != nil || !strings.Contains(result.problem, "restore the snapshot") {
		t.Errorf("a snapshot that was cut: %q, %v", result.problem, err)
	}
}

// TestRealRequests takes a backup and defragments on request, each once.
func TestRealRequests(t *testing.T) {
	r := newRealMember(t)
	for i := range 300 {
		if _, err := r.client.Put(t.Context(), "key"+strconv.Itoa(i%3), strings.Repeat("v", 20000)); err != nil {
			t.Fatal(err)
		}
	}
	r.run()
	r.now = r.now.Add(time.Minute)
	ask := func(id string, kind backup.RequestType) *backup.Answer {
		t.Helper()
		request := backup.Request{ID: id, Type: kind, CreatedAt: r.now, By: "test"}
		if err := r.backup.archive.WriteRequest(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		r.run()
		answer, err := r.backup.archive.ReadAnswer(t.Context())
		if err != nil || answer == nil || answer.ID != id || !answer.Done {
			t.Fatalf("answer to %s: %+v, %v", id, answer, err)
		}
		return answer
	}

	answer := ask("one", backup.RequestSnapshot)
	l := r.list()
	if answer.Error != "" || len(l) != 2 || l[1].ID != answer.Backup || l[1].RequestID != "one" || l[1].Reason != backup.ReasonRequest {
		t.Fatalf("%+v: %+v", answer, l)
	}
	clear(r.backup.doneRequests) // the agent was killed before it answered
	if err := r.backup.archive.WriteAnswer(t.Context(), backup.Answer{ID: "one", Machine: r.agent.instance.ID, UpdatedAt: r.now}); err != nil {
		t.Fatal(err)
	}
	r.run()
	if l := r.list(); len(l) != 2 {
		t.Errorf("one request led to two backups: %+v", l)
	}

	head, err := r.client.Get(t.Context(), "key0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Compact(t.Context(), head.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	answer = ask("two", backup.RequestDefrag)
	if answer.Error != "" || len(answer.Members) != 1 || answer.Members[0].After >= answer.Members[0].Before/2 {
		t.Errorf("defragmentation: %+v", answer)
	}
	if answer = ask("three", "unknown"); !strings.Contains(answer.Error, "knows no request") {
		t.Errorf("an unknown request: %+v", answer)
	}
	if err := r.backup.archive.WriteRequest(t.Context(), backup.Request{ID: "four", Type: backup.RequestSnapshot, CreatedAt: r.now.Add(-time.Hour)}); err != nil {
		t.Fatal(err)
	}
	r.run()
	if l := r.list(); len(l) != 2 {
		t.Errorf("an old request was carried out: %+v", l)
	}
}
