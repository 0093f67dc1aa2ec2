// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// abandon stores a part of a backup that was never completed, and returns its id.
func (k keptBackups) abandon(ago time.Duration) string {
	k.Helper()
	id := backup.NewID(k.now().Add(-ago), "abandoned")
	if _, err := k.archive.Store.Put(k.Context(), backup.Key("demo", id, "part-00000"), []byte("part")); err != nil {
		k.Fatal(err)
	}

	return id
}

// lookFailing looks with a policy, and returns the ids of the complete and of the incomplete backups. The look must fail.
func (k keptBackups) lookFailing(policy backup.Policy, reason string) (complete, incomplete string) {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), 20*time.Second)
	defer cancel()
	if err := k.look(ctx, policy); err == nil || !strings.Contains(err.Error(), reason) {
		k.Fatalf("the look: %v, want an error with %q", err, reason)
	}

	listing, err := k.catalog.List(k.Context())
	if err != nil {
		k.Fatal(err)
	}

	var ids []string
	for _, b := range listing.Backups {
		ids = append(ids, b.ID)
	}

	return strings.Join(ids, " "), strings.Join(listing.Incomplete, " ")
}

// TestTestsThatCannotRun: a test for which the disk had too little space ended each look, so that nothing was ever deleted.
func TestTestsThatCannotRun(t *testing.T) {
	k := newKeptBackups(t)
	at := k.now()
	tooLarge := backup.Metadata{FormatVersion: backup.FormatVersion, ID: backup.NewID(at, "z"), TakenAt: at, DBSize: 1 << 55}
	if err := k.archive.Commit(t.Context(), tooLarge); err != nil {
		t.Fatal(err)
	}

	policy := backup.Policy{Disabled: true, Interval: time.Hour, KeepAll: time.Hour, KeepDaily: 1, VerifyEvery: 1}
	abandoned := k.abandon(7 * time.Hour)
	complete, incomplete := k.lookFailing(policy, "free space")
	if strings.Contains(complete, k.old) || strings.Contains(incomplete, abandoned) {
		t.Errorf("nothing was deleted: %s; %s", complete, incomplete)
	}

	if !strings.Contains(complete, tooLarge.ID) {
		t.Errorf("the backup that could not be tested was deleted: %s", complete)
	}
}

// TestBackupsThatCannotBeTaken: while a backup was due and could not be taken, abandoned uploads were kept.
func TestBackupsThatCannotBeTaken(t *testing.T) {
	k := newKeptBackups(t)
	k.agent.apiOpen.Store(true)
	k.url = "https://127.0.0.1:1" // nobody listens
	policy := backup.Policy{Interval: 30 * time.Second, KeepAll: time.Hour, KeepDaily: 1, VerifyEvery: 1}
	abandoned := k.abandon(7 * time.Hour)
	young := k.abandon(time.Hour)
	complete, incomplete := k.lookFailing(policy, "")
	if strings.Contains(incomplete, abandoned) || !strings.Contains(incomplete, young) {
		t.Errorf("abandoned uploads after the look: %s", incomplete)
	}

	if !strings.Contains(complete, k.old) {
		t.Errorf("a backup was deleted although no other one can be taken: %s", complete)
	}
}

// failingTool is an etcdutl that is killed.
type failingTool struct{}

func (failingTool) Run(context.Context, string, ...string) (string, error) {
	return "", errors.New("signal: killed")
}

// TestFailedTakeLeavesNothing: the parts of a backup whose snapshot etcdutl could not read stayed in the store, at each attempt.
func TestFailedTakeLeavesNothing(t *testing.T) {
	b := backupToTest(t, failingTool{})
	snapshot := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(snapshot, []byte("snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	b.tool.run = cancellingTool{cancel}
	if _, err := b.store(ctx, snapshot, etcd.SnapshotSource{}, backup.Metadata{TakenAt: b.now()}); err == nil {
		t.Fatal("no error")
	}

	keys, err := b.archive.Store.List(t.Context(), "")
	if err != nil || len(keys) > 0 {
		t.Errorf("left behind: %v, %v", keys, err)
	}
}

// cancellingTool is an etcdutl that is killed because the agent ends.
type cancellingTool struct{ end context.CancelFunc }

func (c cancellingTool) Run(context.Context, string, ...string) (string, error) {
	c.end()
	return "", errors.New("signal: killed")
}

// askExpired writes a request by a clock that is apart from the machine's, and returns what the agent does with it.
func askExpired(t *testing.T, b *etcdBackup, id string, apart time.Duration) (*backup.Request, *backup.Answer) {
	t.Helper()
	request := backup.Request{ID: id, Type: backup.RequestSnapshot, CreatedAt: b.now().Add(apart)}
	if err := b.archive.WriteRequest(t.Context(), request); err != nil {
		t.Fatal(err)
	}

	next, err := b.nextRequest(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	answer, err := b.archive.ReadAnswer(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	return next, answer
}

// TestRequestsByAnotherClock: a request by a clock that was more than ten minutes apart was dropped without an answer.
func TestRequestsByAnotherClock(t *testing.T) {
	b := backupToTest(t, failingTool{})
	for id, apart := range map[string]time.Duration{"old": -11 * time.Minute, "new": 11 * time.Minute} {
		next, answer := askExpired(t, b, id, apart)
		if next != nil {
			t.Errorf("%s: it is carried out", id)
		}

		if answer == nil || answer.ID != id || !answer.Done || !answer.IsSigned || !strings.Contains(answer.Error, "which is 11m0s apart") {
			t.Fatalf("%s: the answer %+v", id, answer)
		}
	}

	// A request that was refused is not carried out later, by an agent with another clock either.
	clock := b.now().Add(11 * time.Minute)
	b.now = func() time.Time { return clock }
	clear(b.doneRequests)
	refused := backup.Request{ID: "later", Type: backup.RequestSnapshot, CreatedAt: clock.Add(time.Hour)}
	if next, _ := askExpired(t, b, refused.ID, time.Hour); next != nil {
		t.Error("a request from the future is carried out")
	}

	clock = refused.CreatedAt
	clear(b.doneRequests)
	if next, err := b.nextRequest(t.Context()); next != nil || err != nil {
		t.Errorf("a refused request is carried out when its time comes: %+v, %v", next, err)
	}
}

// TestBegunRequestIsNotRefused: what is known of a request that a machine began is not replaced by a refusal, and it is answered once.
func TestBegunRequestIsNotRefused(t *testing.T) {
	b := backupToTest(t, failingTool{})
	began := backup.Answer{ID: "old", Machine: "i-other", Step: "began", UpdatedAt: b.now()}
	if err := b.archive.WriteAnswer(t.Context(), began); err != nil {
		t.Fatal(err)
	}

	if next, answer := askExpired(t, b, "old", -time.Hour); next != nil || answer.Step != began.Step || answer.Done {
		t.Errorf("%+v, %+v", next, answer)
	}

	_, first := askExpired(t, b, "older", -time.Hour)
	if err := b.archive.WriteAnswer(t.Context(), backup.Answer{ID: "another"}); err != nil {
		t.Fatal(err)
	}

	if next, again := askExpired(t, b, "older", -time.Hour); first.ID != "older" || next != nil || again.ID != "another" {
		t.Errorf("answered again: %+v, %+v", first, again)
	}
}

// TestTakePause: each failed attempt to take a backup may have uploaded the database, and the next one followed after a minute.
func TestTakePause(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for interval, want := range map[time.Duration][]time.Duration{
		time.Hour: {
			time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 15 * time.Minute, 15 * time.Minute,
		},
		30 * time.Second: {
			7500 * time.Millisecond, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute,
		},
		24 * time.Hour: {time.Minute, 2 * time.Minute},
	} {
		policy := backup.Policy{Interval: interval}
		var f failedTakes
		if err := f.pausedBy(now, policy); err != nil {
			t.Errorf("without a failure: %v", err)
		}

		for i, pause := range want {
			cause := errors.New("etcdutl was killed")
			f.add(cause, now)
			if err := f.pausedBy(now.Add(pause-time.Second), policy); !errors.Is(err, cause) {
				t.Errorf("every %s, failure %d: %v before %s", interval, i+1, err, pause)
			}

			if err := f.pausedBy(now.Add(pause), policy); err != nil {
				t.Errorf("every %s, failure %d: %v after %s", interval, i+1, err, pause)
			}
		}
	}
}

// TestFailedLookIsReported: between two looks, the task of backups counted as one that works, so that it never had a condition.
func TestFailedLookIsReported(t *testing.T) {
	k := newKeptBackups(t)
	k.agent.apiOpen.Store(true)
	k.url = "https://127.0.0.1:1" // nobody listens
	clock := k.now()
	k.now = func() time.Time { return clock }
	policy := backup.Policy{Interval: 30 * time.Second, KeepAll: time.Hour, KeepDaily: 1, VerifyEvery: 1}
	for _, after := range []time.Duration{0, time.Second, time.Second, 10 * time.Second} {
		clock = clock.Add(after)
		if err := k.lookIfDue(t.Context(), policy); err == nil {
			t.Errorf("no error %s later", after)
		}
	}

	if k.failedTakes.count != 2 {
		t.Errorf("%d attempts", k.failedTakes.count)
	}
}

// TestFailedTestKeepsNoOther: the test of a move's backup for which the disk has too little space kept the newest backup from being
// tested in the same look, and so in every look until the move's backup was too old to be waited for.
func TestFailedTestKeepsNoOther(t *testing.T) {
	programs := &testPrograms{etcd: errors.New("signal: killed")}
	b := backupToTest(t, programs)
	at := b.now().Add(-time.Minute)
	tooLarge := backup.Metadata{
		FormatVersion: backup.FormatVersion,
		ID:            backup.NewID(at, "move"),
		TakenAt:       at,
		Reason:        backup.ReasonMove,
		DBSize:        1 << 55,
	}
	if err := b.archive.Commit(t.Context(), tooLarge); err != nil {
		t.Fatal(err)
	}

	newest := upload(t, b, "newest")
	policy := backup.Policy{Disabled: true, Interval: time.Hour, KeepAll: time.Hour, KeepDaily: 1, VerifyEvery: 1}
	err := b.look(t.Context(), policy)
	for _, want := range []string{"free space", "test backup " + newest.ID} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the look: %v, want an error with %q", err, want)
		}
	}

	if programs.tests != 1 {
		t.Errorf("the newest backup was tested %d times, want once", programs.tests)
	}
}

// TestAttemptsOfEachBackup: attempts to test one backup counted for the next one, which was given up after its first.
func TestAttemptsOfEachBackup(t *testing.T) {
	b := backupToTest(t, &testPrograms{etcd: errors.New("signal: killed")})
	first := upload(t, b, "one")
	second := upload(t, b, "two")
	for attempt := range maxFailedTests - 1 {
		for _, m := range []backup.Metadata{first, second} {
			if err := b.verify(t.Context(), m); err == nil {
				t.Fatalf("attempt %d to test %s is a result", attempt, m.ID)
			}
		}
	}

	for _, m := range []backup.Metadata{first, second} {
		if err := b.verify(t.Context(), m); err != nil {
			t.Errorf("after %d attempts to test %s: %v", maxFailedTests, m.ID, err)
		}
	}
}

// stubbornStore does not delete what is of one backup.
type stubbornStore struct {
	store.Store
	id string
}

func (s stubbornStore) Delete(ctx context.Context, key string) error {
	if strings.Contains(key, s.id) {
		return errors.New("access denied")
	}

	return s.Store.Delete(ctx, key)
}

// TestFailedDeletionKeepsNoOther: a backup that could not be deleted kept all later ones from being deleted, in every look.
func TestFailedDeletionKeepsNoOther(t *testing.T) {
	k := newKeptBackups(t)
	later := k.add(899*24*time.Hour, 1)
	k.archive.Store = stubbornStore{k.archive.Store, k.old}
	policy := backup.Policy{Disabled: true, Interval: time.Hour, KeepAll: time.Hour, KeepDaily: 1, VerifyEvery: 1}
	complete, _ := k.lookFailing(policy, "access denied")
	if strings.Contains(complete, later) {
		t.Errorf("kept with %s: %s", k.old, complete)
	}
}

// TestDeniedDeletionsKeepNoTest: with ten expired backups that could not be deleted, each look spent all of its actions on them, and no
// backup was tested any more.
func TestDeniedDeletionsKeepNoTest(t *testing.T) {
	programs := &testPrograms{etcd: errors.New("signal: killed")}
	k := keptBackups{T: t, etcdBackup: backupToTest(t, programs)}
	const expired, kept = 13, 3
	for n := range expired + kept {
		k.add(900*24*time.Hour-time.Duration(n)*time.Hour, 1)
	}

	newest := upload(t, k.etcdBackup, "newest")
	k.archive.Store = stubbornStore{k.archive.Store, ""}
	policy := backup.Policy{Disabled: true, Interval: time.Hour, KeepAll: time.Hour, KeepDaily: 1, VerifyEvery: 1}
	complete, _ := k.lookFailing(policy, "access denied")
	if programs.tests != 1 {
		t.Errorf("the newest backup %s was tested %d times, want once", newest.ID, programs.tests)
	}

	if n := len(strings.Fields(complete)); n != expired+kept+1 {
		t.Errorf("%d backups are left, want all %d", n, expired+kept+1)
	}
}
