// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

const stateURL = "s3://engine-state"

// stateOptions returns options that reach the state store with cfg.
func stateOptions(cfg sdk.Config) store.Options {
	return store.Options{AWS: func(context.Context) (sdk.Config, error) { return cfg, nil }}
}

// initState creates the state store.
func initState(t *testing.T, r regiontest.Region) {
	t.Helper()
	o := stateOptions(r.AWSConfig())
	steps, err := store.PlanInit(t.Context(), stateURL, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.RunInitSteps(t.Context(), steps, func(store.InitStep) {}); err != nil {
		t.Fatal(err)
	}
}

// applyWithLock applies as the command does: with the lock and an entry in the journal.
func applyWithLock(ctx context.Context, cfg sdk.Config, owner string, g *graph.Graph) (previous *operation.Holder, err error) {
	s, _, err := store.Open(ctx, stateURL, stateOptions(cfg))
	if err != nil {
		return nil, err
	}
	op, err := operation.Coordinator{Store: s, Cluster: "demo", Now: time.Now}.BeginOperation(ctx, operation.Initiator{Owner: owner, PID: 1, Operation: "apply", Command: "slipway apply demo"})
	if err != nil {
		return nil, err
	}
	kept, stop := op.KeepRenewed(ctx)
	err = newEngine(cfg, "demo").run(kept, g)
	stop()
	return op.PreviousHolder(), errors.Join(err, op.Finish(context.WithoutCancel(ctx), err))
}

// readHistory returns the entries of the journal in short form, newest first.
func readHistory(t *testing.T, r regiontest.Region) []string {
	t.Helper()
	s, _, err := store.Open(t.Context(), stateURL, stateOptions(r.AWSConfig()))
	if err != nil {
		t.Fatal(err)
	}
	all, err := operation.Coordinator{Store: s, Cluster: "demo", Now: time.Now}.ListRecords(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, o := range all {
		out = append(out, fmt.Sprint(o.Owner, " ", o.State))
	}
	return out
}

// TestTwoAtOnce lets eight clients apply at the same time. One client wins. Each of the others
// changes nothing and reports who holds the lock. The result is that of one apply.
func TestTwoAtOnce(t *testing.T) {
	g := mustBuildGraph(t, newHASet(t, "demo"))
	const clients = 8
	synctest.Test(t, func(t *testing.T) {
		r := startRegion(t, nil)
		initState(t, r)
		errs := make([]error, clients)
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() { _, errs[i] = applyWithLock(t.Context(), r.AWSConfig(), fmt.Sprintf("client-%d@host", i), g) })
		}
		wg.Wait()
		winner := -1
		for i, err := range errs {
			if err == nil && winner >= 0 {
				t.Fatalf("both client %d and client %d won", winner, i)
			}
			if err == nil {
				winner = i
			}
		}
		if winner < 0 {
			t.Fatalf("no client won: %v", errs)
		}
		for i, err := range errs {
			held, ok := errors.AsType[operation.LockHeldError](err)
			if i != winner && (!ok || held.Holder.Owner != fmt.Sprintf("client-%d@host", winner) || !strings.Contains(err.Error(), held.Holder.Owner)) {
				t.Errorf("client %d does not report that client %d holds the lock: %v", i, winner, err)
			}
		}
		if diff := cmp.Diff([]string{fmt.Sprintf("client-%d@host succeeded", winner)}, readHistory(t, r)); diff != "" {
			t.Errorf("history: %s", diff)
		}
		if n := r.CallCounts()["ec2:CreateVpc"]; n != 1 {
			t.Errorf("%d networks were created", n)
		}
		if p, err := newEngine(r.AWSConfig(), "demo").plan(t.Context(), g); err != nil || !p.IsEmpty() {
			t.Errorf("the second plan is not empty: %v %v", planLines(p), err)
		}
	})
	printFigure(t, "two at once: %d clients apply at the same time, 1 wins, %d report who holds the lock", clients, clients-1)
}

// TestCrashUnderTheLock kills an apply at each mutating call, including the writes of the lock and
// the journal. Until the lease expires, another client reports who holds the lock. Then it takes
// over the lock and converges, and the journal reports that the first apply was interrupted.
func TestCrashUnderTheLock(t *testing.T) {
	g := mustBuildGraph(t, newHASet(t, "demo"))
	var want []string
	calls, certain := 0, 0
	synctest.Test(t, func(t *testing.T) { // without repeats
		r := startRegion(t, nil)
		initState(t, r)
		r.DelayVisibility(0)
		m := r.NewKillableClient(1<<30, false, nil)
		if _, err := applyWithLock(t.Context(), m.AWSConfig(r.AWSConfig()), "ada@host", g); err != nil {
			t.Fatal(err)
		}
		certain = m.MutatingCalls()
	})
	synctest.Test(t, func(t *testing.T) {
		r := startRegion(t, nil)
		initState(t, r)
		m := r.NewKillableClient(1<<30, false, nil)
		if _, err := applyWithLock(t.Context(), m.AWSConfig(r.AWSConfig()), "ada@host", g); err != nil {
			t.Fatal(err)
		}
		waitForRegion()
		calls, want = m.MutatingCalls(), r.Inventory(t)
	})
	var cases, waits atomic.Int32
	t.Run("call", func(t *testing.T) {
		for n := 1; n <= calls; n += callStep() {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d %s", n, killTiming(after)), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						if crashUnderLock(t, g, lockCrash{nth: n, certain: certain, after: after}, want) {
							waits.Add(1)
						}
					})
					cases.Add(1)
				})
			}
		}
	})
	if testing.Short() {
		return
	}
	printFigure(t, "crash under the lock: %d cases (%d calls, including writes of lock and journal), %d had to wait for the lease to expire", cases.Load(), calls, waits.Load())
}

// lockCrash is one case: the call at which the client is killed, the number of calls that every run makes, and whether the call
// takes effect.
type lockCrash struct {
	nth, certain int
	after        bool
}

// crashUnderLock runs one case. It reports whether the next client had to wait.
func crashUnderLock(t *testing.T, g *graph.Graph, c lockCrash, want []string) (waited bool) {
	t.Helper()
	r := startRegion(t, nil)
	initState(t, r)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	m := r.NewKillableClient(c.nth, c.after, kill)
	_, err := applyWithLock(ctx, m.AWSConfig(r.AWSConfig()), "ada@host", g)
	if m.KilledAt() == "" {
		checkNotReached(t, c.nth, c.certain, err)
		return false
	}
	waitForRegion()
	for begin := time.Now(); ; time.Sleep(20 * time.Second) {
		previous, err := applyWithLock(t.Context(), r.AWSConfig(), "bob@host", g)
		held, isHeld := errors.AsType[operation.LockHeldError](err)
		if isHeld && held.Holder.Owner == "ada@host" && time.Since(begin) < 2*time.Minute {
			waited = true
			continue
		}
		if err != nil {
			t.Fatalf("killed %s %s; the next run returns: %v", killTiming(c.after), m.KilledAt(), err)
		}
		if waited && (previous == nil || previous.Owner != "ada@host") {
			t.Errorf("killed %s %s; the lock was not taken over from ada@host but from %v", killTiming(c.after), m.KilledAt(), previous)
		}
		break
	}
	all := readHistory(t, r)
	if len(all) == 0 || all[0] != "bob@host succeeded" || len(all) > 2 {
		t.Errorf("killed %s %s; the history is %v", killTiming(c.after), m.KilledAt(), all)
	}
	if len(all) == 2 && all[1] != "ada@host interrupted" && all[1] != "ada@host succeeded" {
		t.Errorf("killed %s %s; the history is %v", killTiming(c.after), m.KilledAt(), all)
	}
	waitForRegion()
	if diff := cmp.Diff(want, r.Inventory(t)); diff != "" {
		t.Errorf("killed %s %s; differs from the baseline (-baseline +here):\n%s", killTiming(c.after), m.KilledAt(), diff)
	}
	return waited
}
