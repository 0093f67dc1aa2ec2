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

// undisturbed is what apply and delete of the highly available cluster come to when nothing happens.
type undisturbed struct {
	built          regiontest.Snapshot
	full, empty    []string // inventories
	applied, ended int      // calls that change something
}

// watchUndisturbed applies and deletes once. The bubble's beginning is the same for all, so that snapshots fit.
func watchUndisturbed(t *testing.T, g *graph.Graph) (u undisturbed) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		quiet()
		u.empty = r.Inventory(t)
		e := newEngine(r.Config(), "demo")
		if err := e.run(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		_, u.applied = e.calls.Total()
		quiet()
		u.built, u.full = r.Snapshot(t), r.Inventory(t)
		if p, err := newEngine(r.Config(), "demo").plan(t.Context(), g); err != nil || !p.Empty() {
			t.Fatalf("the second plan is not empty: %v %v", lines(p), err)
		}
		e = newEngine(r.Config(), "demo")
		if err := e.run(t.Context(), &graph.Graph{}); err != nil {
			t.Fatal(err)
		}
		_, u.ended = e.calls.Total()
		quiet()
		if diff := cmp.Diff(u.empty, r.Inventory(t)); diff != "" {
			t.Fatalf("delete leaves (-empty +left):\n%s", diff)
		}
	})
	return u
}

// TestCrashAtEveryCall kills the client at each call of apply and of delete that changes something, before the call
// leaves and after it took effect; then runs it again. It converges, there is nothing twice and nothing left over.
func TestCrashAtEveryCall(t *testing.T) {
	g := mustBuild(t, ha(t, "demo"))
	u := watchUndisturbed(t, g)
	t.Logf("undisturbed: %d things; apply makes %d calls that change something, delete %d", len(u.full), u.applied, u.ended)
	var cases atomic.Int32
	for _, op := range []struct {
		name  string
		from  regiontest.Snapshot
		to    *graph.Graph
		calls int
		want  []string
	}{
		{"apply", nil, g, u.applied, u.full},
		{"delete", u.built, &graph.Graph{}, u.ended, u.empty},
	} {
		t.Run(op.name, func(t *testing.T) {
			for n := 1; n <= op.calls; n++ {
				for _, after := range []bool{false, true} {
					t.Run(fmt.Sprintf("call %d %s", n, when(after)), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							crash(t, crashCase{from: op.from, to: op.to, nth: n, after: after, want: op.want})
						})
						cases.Add(1)
					})
				}
			}
		})
	}
	count(t, "crash at every call: %d cases (apply %d calls, delete %d calls, each before it leaves and after it took effect)", cases.Load(), u.applied, u.ended)
}

func when(after bool) string { //nolint:revive // it names one of two ways to die
	if after {
		return "after"
	}
	return "before"
}

type crashCase struct {
	from  regiontest.Snapshot
	to    *graph.Graph
	nth   int
	after bool
	want  []string // the inventory in the end
}

func crash(t *testing.T, c crashCase) {
	t.Helper()
	r := start(t, c.from)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	m := r.Mortal(c.nth, c.after, kill)
	err := newEngine(m.Config(r.Config()), "demo").run(ctx, c.to)
	if m.Killed() == "" {
		// Retries may have taken more calls in the undisturbed run: then there is no such call, and the run must be whole.
		if err != nil {
			t.Fatalf("nobody was killed, but: %v", err)
		}
		t.Fatalf("call %d was not reached", c.nth)
	}
	if err == nil || !errors.Is(err, regiontest.ErrKilled) && !errors.Is(err, context.Canceled) {
		t.Fatalf("killed at %s, but the run says %v", m.Killed(), err)
	}
	quiet() // calls that were under way take effect
	e := newEngine(r.Config(), "demo")
	if err := e.run(t.Context(), c.to); err != nil {
		t.Fatalf("killed %s %s; the next run fails: %v", when(c.after), m.Killed(), err)
	}
	if p, err := newEngine(r.Config(), "demo").plan(t.Context(), c.to); err != nil || !p.Empty() {
		t.Errorf("killed %s %s; the second plan is not empty: %v\n%s", when(c.after), m.Killed(), err, strings.Join(lines(p), "\n"))
	}
	quiet()
	if diff := cmp.Diff(c.want, r.Inventory(t)); diff != "" {
		t.Errorf("killed %s %s; not as undisturbed (-undisturbed +here):\n%s", when(c.after), m.Killed(), diff)
	}
}
