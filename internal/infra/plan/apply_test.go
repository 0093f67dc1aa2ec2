// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// slow is a cloud whose operations take time.
type slow struct {
	*cloud
	create, ready map[string]time.Duration
}

func (s slow) Create(ctx context.Context, t plan.Task) (plan.StepResult, error) {
	time.Sleep(s.create[t.Step.Kind])
	return s.cloud.Create(ctx, t)
}

func (s slow) WaitReady(ctx context.Context, t plan.Task, _ plan.StepResult) error {
	time.Sleep(s.ready[t.Step.Kind])
	return ctx.Err()
}

func TestApplyTakesTheLongestChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := slow{&cloud{things: map[string]plan.ActualResource{}}, map[string]time.Duration{
			"net": time.Second, "zone": 20 * time.Second, "gate": 100 * time.Second, "template": time.Second, "machine": 30 * time.Second,
		}, map[string]time.Duration{"rule": 110 * time.Second}}
		p, _ := plan.Compute(spec{Zones: 4, Rules: []string{"a"}, Port: 1, Machines: 3}.graph(), nil, plan.Options{})
		start := time.Now()
		waits := 0
		w := walk(c)
		w.OnEvent = func(e plan.Event) {
			if e.State == plan.Waiting {
				waits++
			}
		}
		if err := w.Apply(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if got, want := time.Since(start), 132*time.Second; got != want {
			t.Errorf("took %s, the longest chain is %s", got, want)
		}
		if waits == 0 {
			t.Error("no Waiting event was sent")
		}
	})
}

func TestOnlyThrottledAndNotYetAreRetried(t *testing.T) {
	for class, retried := range map[plan.ErrorClass]bool{
		plan.Throttled: true, plan.NotReady: true, plan.InUse: false, plan.AccessDenied: false, plan.LimitExceeded: false, plan.NotFound: false, plan.Unclassified: false,
	} {
		t.Run(string("class "+class), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cloud{things: map[string]plan.ActualResource{}}
				n := 0
				c.fail = func(plan.Task) error {
					if n++; n <= 3 {
						return classed{errors.New("no"), class}
					}
					return nil
				}
				g := &graph.Graph{}
				graph.Add(g, "main", net{CIDR: "10.0.0.0/8"})
				p, _ := plan.Compute(g, nil, plan.Options{})
				if err := walk(c).Apply(t.Context(), p); (err == nil) != retried {
					t.Errorf("retried %v, error %v", retried, err)
				}
			})
		})
	}
}

// TestInterruptedIsNotDone: an interrupted run starts no more operations and is an error: a deletion would
// remove the cluster's state next.
func TestInterruptedIsNotDone(t *testing.T) {
	c := &cloud{things: map[string]plan.ActualResource{}}
	p, _ := plan.Compute(small().graph(), nil, plan.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	c.fail = func(plan.Task) error { cancel(); return nil } // the running operation succeeds
	w := walk(c)
	w.MaxParallel = 1
	err := w.Apply(ctx, p)
	stopped, ok := errors.AsType[*plan.InterruptedError](err)
	want := fmt.Sprintf("interrupted: 1 of %d done, 0 in flight; rerun to resume", len(p.Steps))
	if !errors.Is(err, context.Canceled) || !ok || stopped.Error() != want || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if len(c.things) > 1 {
		t.Errorf("%d things were made after the interruption", len(c.things)-1)
	}
}

// inFlightCloud starts three creations together. That of net/a fails, and the others are interrupted.
type inFlightCloud struct {
	plan.Cloud
	started sync.WaitGroup
	cancel  func()
}

func (c *inFlightCloud) Create(_ context.Context, task plan.Task) (plan.StepResult, error) {
	c.started.Done()
	c.started.Wait()
	if task.Step.Addr == "net/a" {
		return plan.StepResult{}, errors.New("no")
	}
	c.cancel()
	return plan.StepResult{}, fmt.Errorf("create it: %w", context.Canceled)
}

// TestInFlight: what had started when the run was interrupted is counted, and not listed as failed.
func TestInFlight(t *testing.T) {
	g := &graph.Graph{}
	graph.Add(g, "a", net{CIDR: "a"})
	graph.Add(g, "b", net{CIDR: "b"})
	graph.Add(g, "c", net{CIDR: "c"})
	p, _ := plan.Compute(g, nil, plan.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	c := &inFlightCloud{cancel: cancel}
	c.started.Add(3)
	err := walk(c).Apply(ctx, p)
	if want := "interrupted: 0 of 3 done, 2 in flight; rerun to resume\ncreate net/a: no"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestEventsHoldNoLock: operations go on while OnEvent blocks, and every event is delivered before Apply
// returns.
func TestEventsHoldNoLock(t *testing.T) {
	g := &graph.Graph{}
	graph.Add(g, "a", net{CIDR: "a"})
	graph.Add(g, "b", net{CIDR: "b"})
	p, _ := plan.Compute(g, nil, plan.Options{})
	created := make(chan graph.Addr, 2)
	c := &cloud{things: map[string]plan.ActualResource{}}
	c.fail = func(task plan.Task) error { created <- task.Step.Addr; return nil }
	delivered := map[graph.Addr]plan.State{}
	first := true
	w := walk(c)
	w.OnEvent = func(e plan.Event) {
		if first { // the other operation must be able to start and finish
			first = false
			select {
			case <-created:
			case <-time.After(10 * time.Second):
				t.Error("no operation runs while OnEvent blocks")
			}
		}
		delivered[e.Step.Addr] = e.State
	}
	if err := w.Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if delivered["net/a"] != plan.Done || delivered["net/b"] != plan.Done {
		t.Errorf("delivered %v", delivered)
	}
}

func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{things: map[string]plan.ActualResource{}, fail: func(plan.Task) error { return classed{errors.New("pending"), plan.NotReady} }}
		g := small().graph()
		p, _ := plan.Compute(g, nil, plan.Options{})
		var skipped, failed []string
		w := walk(c)
		w.OnEvent = func(e plan.Event) {
			switch e.State {
			case plan.Skipped:
				skipped = append(skipped, string(e.Step.Addr))
			case plan.Failed:
				failed = append(failed, string(e.Step.Addr))
			default:
			}
		}
		err := w.Apply(t.Context(), p)
		if err == nil || !strings.Contains(err.Error(), "create net/main: gave up after 15m0s: pending") {
			t.Errorf("got %v", err)
		}
		if len(failed) != 1 || len(skipped) != len(p.Steps)-1 {
			t.Errorf("failed %v, skipped %v", failed, skipped)
		}
	})
}
