// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// stores runs test with each kind of store: a directory, and S3 over HTTP.
func stores(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Helper()
	t.Run("file", func(t *testing.T) { test(t, store.NewFileStore(t.TempDir())) })
	t.Run("s3", func(t *testing.T) { test(t, bucket(t)) })
}

// bucket returns a store on S3 in a new local region.
func bucket(t *testing.T) store.Store {
	t.Helper()
	client := s3.NewFromConfig(regiontest.Start(t).AWSConfig())
	name := "slipway-test-" + strings.ToLower(rand.Text())
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name}); err != nil {
		t.Fatal(err)
	}
	return store.NewS3Store(client, name, "state")
}

// clock is a clock that a test sets.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func begin(t *testing.T, d operation.Coordinator, owner string) *operation.Operation {
	t.Helper()
	op, err := d.BeginOperation(t.Context(), who(owner))
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func end(t *testing.T, op *operation.Operation, result error) {
	t.Helper()
	if err := op.Finish(t.Context(), result); err != nil {
		t.Fatal(err)
	}
}

// outcome is the part of a record that tests compare.
type outcome struct {
	Token int64
	Owner string
	State operation.State
	Error string
}

func history(t *testing.T, d operation.Coordinator) []outcome {
	t.Helper()
	records, err := d.ListRecords(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []outcome
	for _, r := range records {
		out = append(out, outcome{r.Token, r.Owner, r.State, r.Error})
	}
	return out
}

func wantHistory(t *testing.T, d operation.Coordinator, want ...outcome) {
	t.Helper()
	if diff := cmp.Diff(want, history(t, d)); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

// TestLife: operations one after another, the newest first in the history.
func TestLife(t *testing.T) {
	stores(t, func(t *testing.T, s store.Store) {
		t.Helper()
		c := newClock()
		d := operation.Coordinator{Store: s, Cluster: "demo", Now: c.now}
		wantHistory(t, d)
		op := begin(t, d, "me@here")
		wantHistory(t, d, outcome{1, "me@here", operation.Running, ""})
		op.UpdateRecord(func(r *operation.Record) { r.Plan = &operation.ChangeCounts{Add: 82} })
		if err := op.SaveRecord(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Minute / 2)
		end(t, op, nil)
		end(t, begin(t, d, "you@there"), errors.New("subnet/a: the call failed at https://me:hunter2@x?X-Amz-Signature=abc"))
		wantHistory(t, d,
			outcome{2, "you@there", operation.Failed, "subnet/a: the call failed at https://[redacted]@x?X-Amz-Signature=[redacted]"},
			outcome{1, "me@here", operation.Succeeded, ""})
		records, err := d.ListRecords(t.Context(), 1)
		if err != nil || len(records) != 1 || records[0].Token != 2 {
			t.Errorf("with limit 1: %v %v", records, err)
		}
		all, _ := d.ListRecords(t.Context(), 0)
		if first := all[1]; first.Plan.Add != 82 || first.EndedAt.Sub(first.StartedAt) != time.Minute/2 {
			t.Errorf("the record is %+v", first)
		}
	})
}

// TestOneAtATime: of many concurrent operations one gets the lock, and the others' errors name its owner.
func TestOneAtATime(t *testing.T) {
	stores(t, func(t *testing.T, s store.Store) {
		t.Helper()
		const rounds, clients = 3, 6
		d := operation.Coordinator{Store: s, Cluster: "demo", Now: newClock().now}
		for round := range rounds {
			var mu sync.Mutex
			var won []*operation.Operation
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() {
					op, err := d.BeginOperation(t.Context(), who(fmt.Sprint("client-", i)))
					mu.Lock()
					defer mu.Unlock()
					var held operation.LockHeldError
					switch {
					case err == nil:
						won = append(won, op)
					case !errors.As(err, &held) || held.Holder.Owner == "" || held.Holder.Owner == fmt.Sprint("client-", i):
						t.Errorf("client %d: %v", i, err)
					}
				})
			}
			wg.Wait()
			if len(won) != 1 {
				t.Fatalf("%d of %d clients won", len(won), clients)
			}
			if got := won[0].Token(); got != int64(round+1) {
				t.Errorf("round %d has token %d", round, got)
			}
			end(t, won[0], nil)
		}
	})
}

// TestTakeover: a killed operation's lock can be acquired after its lease and the maximal clock skew, not
// before. Its record then has the state interrupted, and if it was not killed after all it cannot write any
// more.
func TestTakeover(t *testing.T) {
	stores(t, func(t *testing.T, s store.Store) {
		t.Helper()
		c := newClock()
		d := operation.Coordinator{Store: s, Cluster: "demo", Now: c.now}
		dead := begin(t, d, "me@here")
		c.pass(operation.DefaultLeaseDuration + operation.MaxClockSkew(operation.DefaultLeaseDuration) - time.Second)
		_, err := d.BeginOperation(t.Context(), who("you@there"))
		want := "cluster demo is locked by me@here (pid 1, apply) since 2026-03-01 12:00:00Z: the lock expires at 2026-03-01 12:01:10Z unless it is renewed"
		if err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
		c.pass(time.Second)
		op := begin(t, d, "you@there")
		if p := op.PreviousHolder(); p == nil || p.Owner != "me@here" {
			t.Errorf("taken over from %v", p)
		}
		wantHistory(t, d, outcome{2, "you@there", operation.Running, ""}, outcome{1, "me@here", operation.Interrupted, ""})
		_, putErr := dead.GuardStore(s).Put(t.Context(), "demo/cluster.yaml", []byte("x"))
		_, createErr := dead.GuardStore(s).Create(t.Context(), "demo/other.yaml", []byte("x"))
		for what, err := range map[string]error{
			"put": putErr, "create": createErr, "delete": dead.GuardStore(s).Delete(t.Context(), operation.LockKey("demo")),
			"create all": createAll(t.Context(), dead.GuardStore(s)), "delete all": store.DeleteAll(t.Context(), dead.GuardStore(s), []string{operation.LockKey("demo")}),
			"save": dead.SaveRecord(t.Context()), "end": dead.Finish(t.Context(), nil), "ensure": dead.EnsureHeld(t.Context()), "renew": dead.Renew(t.Context()),
		} {
			if !errors.Is(err, operation.ErrLockLost) {
				t.Errorf("%s after the lock was lost: %v", what, err)
			}
		}
		if _, err := op.GuardStore(s).Put(t.Context(), "demo/cluster.yaml", []byte("y")); err != nil {
			t.Error(err)
		}
		end(t, op, nil)
		wantHistory(t, d, outcome{2, "you@there", operation.Succeeded, ""}, outcome{1, "me@here", operation.Interrupted, ""})
	})
}

// TestUnlock: BreakLock takes the lock from its holder, but only from the holder with the given token.
func TestUnlock(t *testing.T) {
	stores(t, func(t *testing.T, s store.Store) {
		t.Helper()
		c := newClock()
		d := operation.Coordinator{Store: s, Cluster: "demo", Now: c.now}
		held := begin(t, d, "me@here")
		if err := d.BreakLock(t.Context(), operation.Initiator{Owner: "boss@there", Operation: "unlock"}, 7); err == nil {
			t.Error("a lock with another token was released")
		}
		if err := d.BreakLock(t.Context(), operation.Initiator{Owner: "boss@there", Operation: "unlock"}, held.Token()); err != nil {
			t.Fatal(err)
		}
		if err := held.VerifyHeld(t.Context()); !errors.Is(err, operation.ErrLockLost) {
			t.Errorf("the former holder gets %v", err)
		}
		end(t, begin(t, d, "you@there"), nil)
		wantHistory(t, d, outcome{3, "you@there", operation.Succeeded, ""}, outcome{2, "boss@there", operation.Succeeded, ""},
			outcome{1, "me@here", operation.Interrupted, ""})
	})
}

// TestLateWrites: another operation takes the lock between the holder's last check and its write.
func TestLateWrites(t *testing.T) {
	tests := map[string]func(late *operation.Operation, s store.Store) error{
		"the record": func(late *operation.Operation, _ store.Store) error { return late.SaveRecord(t.Context()) },
		"a document that the taker wrote": func(late *operation.Operation, s store.Store) error {
			_, err := late.GuardStore(s).Put(t.Context(), "demo/cluster.yaml", []byte("late"))
			return err
		},
	}
	for name, write := range tests {
		t.Run(name, func(t *testing.T) {
			c, m := newClock(), newMemory()
			d := operation.Coordinator{Store: m, Cluster: "demo", Now: c.now}
			late := begin(t, d, "me@here")
			if _, err := late.GuardStore(m).Put(t.Context(), "demo/cluster.yaml", []byte("early")); err != nil {
				t.Fatal(err)
			}
			var taker *operation.Operation
			m.before = func(string) { // the late operation has checked the lock and is suspended now
				m.before = nil
				c.pass(2 * operation.DefaultLeaseDuration)
				taker = begin(t, d, "you@there")
				if _, err := taker.GuardStore(m).Put(t.Context(), "demo/cluster.yaml", []byte("new")); err != nil {
					t.Fatal(err)
				}
			}
			if err := write(late, m); err == nil {
				t.Error("the late write took effect")
			}
			o, _ := m.Get(t.Context(), "demo/cluster.yaml")
			if string(o.Body) != "new" {
				t.Errorf("the document is %q", o.Body)
			}
			end(t, taker, nil)
			wantHistory(t, d, outcome{2, "you@there", operation.Succeeded, ""}, outcome{1, "me@here", operation.Interrupted, ""})
		})
	}
}

// TestKilledBeforeItsRecord: the next operation writes the record of an operation that was killed before it
// could.
func TestKilledBeforeItsRecord(t *testing.T) {
	c, m := newClock(), newMemory()
	d := operation.Coordinator{Store: m, Cluster: "demo", Now: c.now}
	if _, err := d.Acquire(t.Context(), who("me@here")); err != nil {
		t.Fatal(err)
	}
	c.pass(2 * operation.DefaultLeaseDuration)
	end(t, begin(t, d, "you@there"), nil)
	wantHistory(t, d, outcome{2, "you@there", operation.Succeeded, ""}, outcome{1, "me@here", operation.Interrupted, ""})
}

// TestLostAnswers: each write of an operation in turn takes effect, but its response is lost.
func TestLostAnswers(t *testing.T) {
	for lost := range 6 {
		c, m := newClock(), newMemory()
		d := operation.Coordinator{Store: m, Cluster: "demo", Now: c.now}
		n := 0
		m.before = func(string) {
			if n == lost {
				m.forget = 1
			}
			n++
		}
		op, err := d.BeginOperation(t.Context(), who("me@here"))
		if err == nil {
			_ = op.Renew(t.Context())
			_ = op.SaveRecord(t.Context())
			err = op.Finish(t.Context(), nil)
		}
		c.pass(2 * operation.DefaultLeaseDuration)
		end(t, begin(t, d, "you@there"), nil) // in every case the next operation works
		records := history(t, d)
		if records[0].State != operation.Succeeded || len(records) > 1 && records[1].State == operation.Running {
			t.Errorf("response %d lost (%v): %v", lost, err, records)
		}
	}
}

// TestTokensContinueAfterTheLockWasDeleted: deleting an unreadable lock by hand must not repeat a token.
func TestTokensContinueAfterTheLockWasDeleted(t *testing.T) {
	m := newMemory()
	d := operation.Coordinator{Store: m, Cluster: "demo", Now: newClock().now}
	held := begin(t, d, "me@here")
	_, _ = m.Put(t.Context(), operation.LockKey("demo"), []byte("{}"))
	if _, err := d.BeginOperation(t.Context(), who("you@there")); err == nil || !strings.Contains(err.Error(), "_operations/demo/lock.json") {
		t.Errorf("a broken lock gave %v", err)
	}
	_ = m.Delete(t.Context(), operation.LockKey("demo"))
	if err := held.VerifyHeld(t.Context()); !errors.Is(err, operation.ErrLockLost) {
		t.Errorf("the former holder gets %v", err)
	}
	if op := begin(t, d, "you@there"); op.Token() != 2 {
		t.Errorf("token %d was given again", op.Token())
	}
}

// TestSkew: with the maximal allowed clock skew in either direction, two operations never hold the lock at
// the same time.
func TestSkew(t *testing.T) {
	for _, off := range []time.Duration{-operation.MaxClockSkew(operation.DefaultLeaseDuration), 0, operation.MaxClockSkew(operation.DefaultLeaseDuration)} {
		m, c := newMemory(), newClock()
		slow := operation.Coordinator{Store: m, Cluster: "demo", Now: c.now}
		fast := operation.Coordinator{Store: m, Cluster: "demo", Now: func() time.Time { return c.now().Add(off) }}
		held := begin(t, slow, "me@here")
		taken := false
		for second := range 90 {
			acting := held.Err() == nil
			if _, err := fast.BeginOperation(t.Context(), who("you@there")); err == nil {
				if taken = true; acting {
					t.Errorf("clocks %s apart: acquired in second %d while its holder may still act", off, second)
				}
				break
			}
			c.pass(time.Second)
		}
		if !taken {
			t.Errorf("clocks %s apart: never taken", off)
		}
	}
}

// TestKeep: a lease is renewed while its holder works, and the context ends when it cannot be renewed.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		d := operation.Coordinator{Store: m, Cluster: "demo", Now: time.Now}
		op := begin(t, d, "me@here")
		ctx, stop := op.KeepRenewed(t.Context())
		time.Sleep(10 * time.Minute)
		if err := errors.Join(ctx.Err(), op.Err()); err != nil {
			t.Fatalf("after ten minutes of work: %v", err)
		}
		if _, err := d.BeginOperation(t.Context(), who("you@there")); err == nil {
			t.Fatal("a renewed lease was taken")
		}
		m.fail(1000) // the store is not reachable any more
		time.Sleep(operation.DefaultLeaseDuration - operation.RenewInterval(operation.DefaultLeaseDuration)*2)
		if ctx.Err() != nil {
			t.Error("it gave up although the lease lasts")
		}
		time.Sleep(2 * operation.DefaultLeaseDuration)
		if !errors.Is(context.Cause(ctx), operation.ErrLockLost) {
			t.Errorf("the work ended with %v", context.Cause(ctx))
		}
		stop()
		m.fail(0)
		other := begin(t, d, "you@there")
		otherCtx, otherStop := other.KeepRenewed(t.Context())
		if err := d.BreakLock(t.Context(), operation.Initiator{Owner: "boss", Operation: "unlock"}, other.Token()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(operation.RenewInterval(operation.DefaultLeaseDuration) + time.Second)
		if !errors.Is(context.Cause(otherCtx), operation.ErrLockLost) {
			t.Errorf("after unlock the context continues: %v", context.Cause(otherCtx))
		}
		otherStop()
	})
}

// TestSleep: after a laptop has slept longer than its lease, the lease is unusable until it is renewed, which
// works if no other operation took the lock.
func TestSleep(t *testing.T) {
	c, m := newClock(), newMemory()
	d := operation.Coordinator{Store: m, Cluster: "demo", Now: c.now}
	op := begin(t, d, "me@here")
	c.pass(time.Hour)
	if !errors.Is(op.Err(), operation.ErrLockLost) {
		t.Errorf("after an hour of sleep: %v", op.Err())
	}
	if err := op.EnsureHeld(t.Context()); err != nil {
		t.Fatal(err)
	}
	end(t, op, nil)
}

func TestRedact(t *testing.T) {
	secrets := []string{
		"https://user:hunter2@host/x", "s3 GET https://b.s3/?X-Amz-Credential=AKIA/x&X-Amz-Signature=hunter2", "token=hunter2",
		"-----BEGIN EC PRIVATE KEY-----\nhunter2\n-----END EC PRIVATE KEY-----", "AGE-SECRET-KEY-1HUNTER2HUNTER2",
	}
	d := operation.Coordinator{Store: newMemory(), Cluster: "demo", Now: newClock().now}
	for _, text := range secrets {
		op, err := d.BeginOperation(t.Context(), operation.Initiator{Owner: "me", Operation: "apply", Command: "slipway apply " + text})
		if err != nil {
			t.Fatal(err)
		}
		end(t, op, errors.New(text+strings.Repeat("x", 1<<16)))
		o, err := d.Store.Get(t.Context(), operation.JournalKey("demo", op.Token()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.ToLower(string(o.Body)), "hunter2") || len(o.Body) > 1<<14 {
			t.Errorf("%q is recorded as %.600s", text, o.Body)
		}
	}
}

// createAll creates an object as part of a batch.
func createAll(ctx context.Context, s store.Store) error {
	_, err := store.CreateAll(ctx, s, []store.Object{{Key: "demo/batch.yaml", Body: []byte("x")}})
	return err
}
