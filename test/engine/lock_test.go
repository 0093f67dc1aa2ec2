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

// stateOptions reach the state store as cfg does.
func stateOptions(cfg sdk.Config) store.Options {
	return store.Options{AWS: func(context.Context) (sdk.Config, error) { return cfg, nil }}
}

// initState makes the state store.
func initState(t *testing.T, r regiontest.Region) {
	t.Helper()
	o := stateOptions(r.Config())
	steps, err := store.Init(t.Context(), stateURL, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Do(t.Context(), steps, func(store.Step) {}); err != nil {
		t.Fatal(err)
	}
}

// operate applies as the command does: under the lock, with a record.
func operate(ctx context.Context, cfg sdk.Config, owner string, g *graph.Graph) (previous *operation.Holder, err error) {
	s, _, err := store.Open(ctx, stateURL, stateOptions(cfg))
	if err != nil {
		return nil, err
	}
	op, err := operation.Desk{Store: s, Cluster: "demo", Now: time.Now}.Begin(ctx, operation.Who{Owner: owner, PID: 1, Operation: "apply", Command: "slipway apply demo"})
	if err != nil {
		return nil, err
	}
	kept, stop := op.Keep(ctx)
	err = newEngine(cfg, "demo").run(kept, g)
	stop()
	return op.Previous(), errors.Join(err, op.End(context.WithoutCancel(ctx), err))
}

// history is what was recorded, newest first, in short.
func history(t *testing.T, r regiontest.Region) []string {
	t.Helper()
	s, _, err := store.Open(t.Context(), stateURL, stateOptions(r.Config()))
	if err != nil {
		t.Fatal(err)
	}
	all, err := operation.Desk{Store: s, Cluster: "demo", Now: time.Now}.History(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, o := range all {
		out = append(out, fmt.Sprint(o.Owner, " ", o.State))
	}
	return out
}

// TestTwoAtOnce lets eight clients apply at the same moment. One wins; each of the others changes nothing and says who
// holds the lock; what comes of it is what one apply makes.
func TestTwoAtOnce(t *testing.T) {
	g := mustBuild(t, ha(t, "demo"))
	const clients = 8
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		initState(t, r)
		errs := make([]error, clients)
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() { _, errs[i] = operate(t.Context(), r.Config(), fmt.Sprintf("client-%d@host", i), g) })
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
			t.Fatalf("nobody won: %v", errs)
		}
		for i, err := range errs {
			held, ok := errors.AsType[operation.HeldError](err)
			if i != winner && (!ok || held.Holder.Owner != fmt.Sprintf("client-%d@host", winner) || !strings.Contains(err.Error(), held.Holder.Owner)) {
				t.Errorf("client %d does not say that client %d holds the lock: %v", i, winner, err)
			}
		}
		if diff := cmp.Diff([]string{fmt.Sprintf("client-%d@host succeeded", winner)}, history(t, r)); diff != "" {
			t.Errorf("history: %s", diff)
		}
		if n := r.Calls()["ec2:CreateVpc"]; n != 1 {
			t.Errorf("%d networks were made", n)
		}
		if p, err := newEngine(r.Config(), "demo").plan(t.Context(), g); err != nil || !p.Empty() {
			t.Errorf("the second plan is not empty: %v %v", lines(p), err)
		}
	})
	count(t, "two at once: %d clients apply at the same moment, 1 wins, %d say who holds the lock", clients, clients-1)
}

// TestCrashUnderTheLock kills an apply at each call that changes something, writes of the lock and the journal among
// them. Until the lease ends another client is told who holds the lock; then it takes the lock over, converges, and the
// record says that the first was interrupted.
func TestCrashUnderTheLock(t *testing.T) {
	g := mustBuild(t, ha(t, "demo"))
	var want []string
	calls := 0
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		initState(t, r)
		m := r.Mortal(1<<30, false, nil)
		if _, err := operate(t.Context(), m.Config(r.Config()), "ada@host", g); err != nil {
			t.Fatal(err)
		}
		quiet()
		calls, want = m.Changes(), r.Inventory(t)
	})
	var cases, waits atomic.Int32
	t.Run("call", func(t *testing.T) {
		for n := 1; n <= calls; n++ {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d %s", n, when(after)), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						if crashUnderLock(t, g, n, after, want) {
							waits.Add(1)
						}
					})
					cases.Add(1)
				})
			}
		}
	})
	count(t, "crash under the lock: %d cases (%d calls, writes of lock and journal among them), %d had to wait for the lease to end", cases.Load(), calls, waits.Load())
}

// crashUnderLock is one case. It returns whether the next client had to wait.
func crashUnderLock(t *testing.T, g *graph.Graph, nth int, after bool, want []string) (waited bool) {
	t.Helper()
	r := start(t, nil)
	initState(t, r)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	m := r.Mortal(nth, after, kill)
	_, err := operate(ctx, m.Config(r.Config()), "ada@host", g)
	if m.Killed() == "" {
		t.Fatalf("call %d was not reached: %v", nth, err)
	}
	quiet()
	for begin := time.Now(); ; time.Sleep(20 * time.Second) {
		previous, err := operate(t.Context(), r.Config(), "bob@host", g)
		held, isHeld := errors.AsType[operation.HeldError](err)
		if isHeld && held.Holder.Owner == "ada@host" && time.Since(begin) < 2*time.Minute {
			waited = true
			continue
		}
		if err != nil {
			t.Fatalf("killed %s %s; the next run says: %v", when(after), m.Killed(), err)
		}
		if waited && (previous == nil || previous.Owner != "ada@host") {
			t.Errorf("killed %s %s; the lock was not taken over from ada@host but from %v", when(after), m.Killed(), previous)
		}
		break
	}
	all := history(t, r)
	if len(all) == 0 || all[0] != "bob@host succeeded" || len(all) > 2 {
		t.Errorf("killed %s %s; the history is %v", when(after), m.Killed(), all)
	}
	if len(all) == 2 && all[1] != "ada@host interrupted" && all[1] != "ada@host succeeded" {
		t.Errorf("killed %s %s; the history is %v", when(after), m.Killed(), all)
	}
	quiet()
	if diff := cmp.Diff(want, r.Inventory(t)); diff != "" {
		t.Errorf("killed %s %s; not as undisturbed (-undisturbed +here):\n%s", when(after), m.Killed(), diff)
	}
	return waited
}
