// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// baseline is the result of an undisturbed apply and delete of the highly available cluster.
type baseline struct {
	snapshot                      regiontest.Snapshot
	fullInventory, emptyInventory []string // inventories
	applyCalls, deleteCalls       int      // calls that change something
	repeats                       int      // of calls that did not see what was new
}

// measureBaseline applies and deletes the cluster once. All bubbles start at the same time, so that
// snapshots of different bubbles are comparable.
func measureBaseline(t *testing.T, g *graph.Graph) (u baseline) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := startRegion(t, nil)
		waitForRegion()
		u.emptyInventory = r.Inventory(t)
		e := newEngine(r.AWSConfig(), "demo")
		if err := e.run(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		_, u.applyCalls = e.calls.TotalCalls()
		u.repeats = e.calls.Stats().NotPropagated
		waitForRegion()
		u.snapshot, u.fullInventory = r.Snapshot(t), r.Inventory(t)
		if p, err := newEngine(r.AWSConfig(), "demo").plan(t.Context(), g); err != nil || !p.IsEmpty() {
			t.Fatalf("the second plan is not empty: %v %v", planLines(p), err)
		}
		e = newEngine(r.AWSConfig(), "demo")
		if err := e.run(t.Context(), &graph.Graph{}); err != nil {
			t.Fatal(err)
		}
		_, u.deleteCalls = e.calls.TotalCalls()
		waitForRegion()
		if diff := cmp.Diff(u.emptyInventory, r.Inventory(t)); diff != "" {
			t.Fatalf("delete leaves (-empty +left):\n%s", diff)
		}
	})
	return u
}

// TestCrashAtEveryCall kills the client at each mutating call of apply and of delete, once before
// the call is sent and once after it took effect, and then runs the command again. The second run
// must converge, without duplicates and without leftovers.
func TestCrashAtEveryCall(t *testing.T) {
	g := mustBuildGraph(t, newHASet(t, "demo"))
	u := measureBaseline(t, g)
	t.Logf("undisturbed: %d resources; apply makes %d mutating calls, delete %d", len(u.fullInventory), u.applyCalls, u.deleteCalls)
	var cases atomic.Int32
	for _, op := range []struct {
		name  string
		from  regiontest.Snapshot
		to    *graph.Graph
		calls int
		// certain is the number of calls that every run makes: how many are repeated depends on chance.
		certain int
		want    []string
	}{
		{"apply", nil, g, u.applyCalls, u.applyCalls - u.repeats, u.fullInventory},
		{"delete", u.snapshot, &graph.Graph{}, u.deleteCalls, u.deleteCalls, u.emptyInventory},
	} {
		t.Run(op.name, func(t *testing.T) {
			for n := 1; n <= op.calls; n += callStep() {
				for _, after := range []bool{false, true} {
					t.Run(fmt.Sprintf("call %d %s", n, killTiming(after)), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							crashAndRecover(t, crashCase{from: op.from, to: op.to, nth: n, certain: op.certain, after: after, want: op.want})
						})
						cases.Add(1)
					})
				}
			}
		})
	}
	if testing.Short() {
		return
	}
	printFigure(t, "crash at every call: %d cases (apply %d calls, delete %d calls, each before it is sent and after it took effect)", cases.Load(), u.applyCalls, u.deleteCalls)
}

// callStep returns the distance between the calls at which a crash is tested: 1, or more in the short form.
func callStep() int {
	if testing.Short() {
		return 15
	}

	return 1
}

func killTiming(after bool) string {
	if after {
		return "after"
	}
	return "before"
}

type crashCase struct {
	from regiontest.Snapshot
	to   *graph.Graph
	nth  int
	// certain is the number of calls that every run makes.
	certain int
	after   bool
	want    []string // the inventory in the end
}

// checkNotReached checks a run that made fewer calls than the baseline, which repeated more of them because it did not see what was
// new: such a run is complete.
func checkNotReached(t *testing.T, nth, certain int, err error) {
	t.Helper()
	if err != nil || nth <= certain {
		t.Fatalf("call %d of at least %d was not reached: %v", nth, certain, err)
	}
}

func crashAndRecover(t *testing.T, c crashCase) {
	t.Helper()
	r := startRegion(t, c.from)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	m := r.NewKillableClient(c.nth, c.after, kill)
	err := newEngine(m.AWSConfig(r.AWSConfig()), "demo").run(ctx, c.to)
	if m.KilledAt() == "" {
		checkNotReached(t, c.nth, c.certain, err)
		return
	}
	if err == nil || !errors.Is(err, regiontest.ErrKilled) && !errors.Is(err, context.Canceled) {
		t.Fatalf("killed at %s, but the run returns %v", m.KilledAt(), err)
	}
	waitForRegion() // calls that were under way take effect
	e := newEngine(r.AWSConfig(), "demo")
	if err := e.run(t.Context(), c.to); err != nil {
		t.Fatalf("killed %s %s; the next run fails: %v", killTiming(c.after), m.KilledAt(), err)
	}
	if p, err := newEngine(r.AWSConfig(), "demo").plan(t.Context(), c.to); err != nil || !p.IsEmpty() {
		t.Errorf("killed %s %s; the second plan is not empty: %v\n%s", killTiming(c.after), m.KilledAt(), err, strings.Join(planLines(p), "\n"))
	}
	waitForRegion()
	if diff := cmp.Diff(c.want, r.Inventory(t)); diff != "" {
		t.Errorf("killed %s %s; differs from the baseline (-baseline +here):\n%s", killTiming(c.after), m.KilledAt(), diff)
	}
}
