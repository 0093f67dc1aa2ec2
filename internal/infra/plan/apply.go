// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// Task is one operation as the cloud gets it.
type Task struct {
	Step Step
	// Desired is what is to be, with every reference resolved; nil for a deletion.
	Desired graph.Resource
	// Actual is what exists; zero for a creation.
	Actual ActualResource
	// ReportWaiting tells the operator what is being waited for.
	ReportWaiting func(what string)
}

// StepResult is what came of a creation or an update.
type StepResult struct {
	ID         string
	Attributes map[string]string
}

// Cloud carries out operations. Its errors have classes ([ErrorClassOf]). Each method may be called again with the same task:
// after an error of class Throttled or NotReady, and by a later run after this one was killed.
type Cloud interface {
	// Create makes what t.Want says and returns as soon as others can refer to it.
	Create(ctx context.Context, t Task) (StepResult, error)
	// Update changes t.Have into t.Want.
	Update(ctx context.Context, t Task) (StepResult, error)
	// Delete removes t.Have and returns when what it used is free. That it is gone already is no error.
	Delete(ctx context.Context, t Task) error
	// WaitReady waits until what was made works in full. Nothing else waits for it.
	WaitReady(ctx context.Context, t Task, m StepResult) error
}

// BatchSession is a [Cloud] that wants to know what a whole plan will ask of it, so that it can join calls, and when that has
// been done, so that it can see to it that the next reading shows it.
type BatchSession interface {
	BeginPlan(p Plan)
	EndPlan(ctx context.Context) error
}

// State of an operation, in an [Event].
type State string

// The states.
const (
	Started  State = "started"
	Waiting  State = "waiting"
	Done     State = "done"
	Failed   State = "failed"
	Skipped  State = "skipped" // something it needs failed
	Retrying State = "retrying"
)

// Event is progress.
type Event struct {
	Step    Step
	State   State
	Elapsed time.Duration // since the operation started
	Detail  string        // what is waited for, or the error
	// Index counts finished operations, of Total.
	Index, Total int
}

// Applier says how a plan is applied.
type Applier struct {
	Cloud Cloud
	// Now is the clock.
	Now func() time.Time
	// Jitter returns a number in [0,1) for the spread of retries; nil means none.
	Jitter func() float64
	// OnEvent is told of progress, from one goroutine at a time; nil means nobody.
	OnEvent func(Event)
	// OnApplied is told what each resource that was made or changed is now to be, with every reference resolved; nil means
	// nobody is. It is called by many goroutines.
	OnApplied func(graph.Addr, graph.Resource)
	// MaxParallel operations at most. Default 1000: an operation mostly waits, and pacing calls is for the cloud to do.
	MaxParallel int
	// RetryTimeout is how long an operation is retried while AWS says "not yet". Default 15 minutes.
	RetryTimeout time.Duration
	// ProgressInterval is how often a running operation says that it still waits. Default 10 s.
	ProgressInterval time.Duration
}

// errDependencyFailed marks an operation that was not tried because one it needs failed.
var errDependencyFailed = errors.New("skipped: something it needs failed")

// applyRun is one run of Apply.
type applyRun struct {
	Applier
	plan  Plan
	slots chan struct{}
	done  []chan struct{}
	errs  []error

	mu            sync.Mutex
	results       map[graph.Addr]StepResult
	finishedCount int
}

// Apply carries p out, as many operations at a time as their order allows. A failure stops only what depends on it;
// every other failure is in the joined error. Making a new plan and applying it resumes a run that failed or was killed.
func (w Applier) Apply(ctx context.Context, p Plan) error {
	if len(p.operations) == 0 {
		return nil
	}

	r := &applyRun{Applier: w.withDefaults(), plan: p, results: map[graph.Addr]StepResult{}}
	r.slots = make(chan struct{}, r.MaxParallel)
	r.done = make([]chan struct{}, len(p.operations))
	r.errs = make([]error, len(p.operations))
	for i := range r.done {
		r.done[i] = make(chan struct{})
	}

	for _, a := range p.actual {
		r.results[a.Addr] = StepResult{ID: a.ID, Attributes: a.Attributes}
	}

	session, ok := w.Cloud.(BatchSession)
	if ok {
		session.BeginPlan(p)
	}

	var wg sync.WaitGroup
	for i := range p.operations {
		wg.Go(func() { r.runOperation(ctx, i) })
	}

	wg.Wait()
	err := r.joinErrors(ctx)
	if ok && ctx.Err() == nil {
		err = errors.Join(err, session.EndPlan(ctx))
	}

	return err
}

// joinErrors joins what failed. A run that was stopped is no success even if all that it had begun went well.
func (r *applyRun) joinErrors(ctx context.Context) error {
	var errs []error
	skipped := 0
	for _, err := range r.errs {
		switch {
		case errors.Is(err, errDependencyFailed):
			skipped++
		case err != nil:
			errs = append(errs, err)
		}
	}

	if err := ctx.Err(); err != nil && skipped > 0 {
		errs = append(
			errs,
			fmt.Errorf("stopped before %d of %d operations: %w", skipped, len(r.plan.operations), err),
		)
	}

	return errors.Join(errs...)
}

func (w Applier) withDefaults() Applier {
	if w.MaxParallel == 0 {
		w.MaxParallel = 1000
	}

	if w.RetryTimeout == 0 {
		w.RetryTimeout = 15 * time.Minute
	}

	if w.ProgressInterval == 0 {
		w.ProgressInterval = 10 * time.Second
	}

	if w.Jitter == nil {
		w.Jitter = func() float64 { return 0 }
	}

	if w.OnApplied == nil {
		w.OnApplied = func(graph.Addr, graph.Resource) {}
	}

	if w.OnEvent == nil {
		w.OnEvent = func(Event) {}
	}

	return w
}

// runOperation waits for what operation i needs, does it, and lets go of those that wait for it.
func (r *applyRun) runOperation(ctx context.Context, i int) {
	release := sync.OnceFunc(func() { close(r.done[i]) })
	defer release()
	s := r.plan.Steps[r.plan.operations[i].step]

	for _, dep := range r.plan.dependencies[i] {
		<-r.done[dep]
		if r.hasFailed(dep) {
			r.setError(i, errDependencyFailed)
			r.emitEvent(Event{Step: s, State: Skipped}, 1)
			return
		}
	}

	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
	}

	if err := ctx.Err(); err != nil { // also with a free slot: nothing begins any more
		r.setError(i, errDependencyFailed)
		r.emitEvent(Event{Step: s, State: Skipped, Detail: err.Error()}, 1)
		return
	}

	start := r.Now()
	r.emitEvent(Event{Step: s, State: Started}, 0)
	pulse := r.startHeartbeat(s, start)
	defer pulse.stop()
	err := r.executeOperation(ctx, i, pulse.setReason, release)
	if err != nil {
		r.setError(i, fmt.Errorf("%s %s: %w", s.Action, s.Addr, err))
		r.emitEvent(Event{
			Step:    s,
			State:   Failed,
			Elapsed: r.Now().Sub(start),
			Detail:  err.Error(),
		}, 1)

		return
	}

	r.emitEvent(Event{Step: s, State: Done, Elapsed: r.Now().Sub(start)}, 1)
}

// executeOperation carries operation i out, and calls release once others may go on.
func (r *applyRun) executeOperation(ctx context.Context, i int, waiting func(string), release func()) error {
	op := r.plan.operations[i]
	s := r.plan.Steps[op.step]
	t := Task{Step: s, ReportWaiting: waiting}
	if s.actual != nil {
		t.Actual = *s.actual
	}

	if op.isDestroy {
		return r.retryOperation(ctx, s, waiting, func() error { return r.Cloud.Delete(ctx, t) })
	}

	want, err := r.resolveReferences(s.desired)
	if err != nil {
		return err
	}

	t.Desired = want
	var m StepResult
	act := r.Cloud.Create
	if s.Action == Update {
		act = r.Cloud.Update
	} else {
		t.Actual = ActualResource{}
	}

	err = r.retryOperation(ctx, s, waiting, func() error {
		var e error
		m, e = act(ctx, t)
		return e
	})
	if err != nil {
		return err
	}

	r.recordResult(s.Addr, m)
	r.OnApplied(s.Addr, want)
	release()

	return r.retryOperation(ctx, s, waiting, func() error { return r.Cloud.WaitReady(ctx, t, m) })
}

// resolveReferences fills in what n refers to. That something is missing is a bug in the model or a driver, not in the input.
func (r *applyRun) resolveReferences(n *graph.Node) (graph.Resource, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	want := graph.Resolve(n.Resource, func(s graph.Symbol) (string, bool) {
		m, ok := r.results[s.Addr]
		if !ok || s.Attribute == "" {
			return m.ID, ok && m.ID != ""
		}

		v, ok := m.Attributes[s.Attribute]

		return v, ok
	})
	if missing := graph.Symbols(want); len(missing) > 0 {
		return nil, fmt.Errorf("no value for %s", missing[0])
	}

	return want, nil
}

// retryOperation calls f until it succeeds, fails for good, or patience ends.
func (r *applyRun) retryOperation(ctx context.Context, s Step, waiting func(string), f func() error) error {
	start := r.Now()
	for attempt := 0; ; attempt++ {
		err := f()
		class := ErrorClassOf(err)
		if err == nil || class != Throttled && class != NotReady {
			return err
		}

		if r.Now().Sub(start) > r.RetryTimeout {
			return fmt.Errorf("gave up after %s: %w", r.RetryTimeout, err)
		}

		waiting(err.Error())
		r.emitEvent(Event{
			Step:    s,
			State:   Retrying,
			Elapsed: r.Now().Sub(start),
			Detail:  err.Error(),
		}, 0)
		if e := sleepContext(ctx, r.retryDelay(class, attempt)); e != nil {
			return errors.Join(err, e)
		}
	}
}

// retryDelay before the next attempt: it doubles, up to 20 s when throttled and 5 s when something is not there yet.
func (r *applyRun) retryDelay(class ErrorClass, attempt int) time.Duration {
	limit := 5 * time.Second
	if class == Throttled {
		limit = 20 * time.Second
	}

	d := min(500*time.Millisecond<<min(attempt, 6), limit)

	return d/2 + time.Duration(float64(d)*r.Jitter())
}

func sleepContext(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *applyRun) recordResult(a graph.Addr, m StepResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	merged := StepResult{ID: m.ID, Attributes: map[string]string{}}
	if old, ok := r.results[a]; ok && old.ID == m.ID {
		maps.Copy(merged.Attributes, old.Attributes)
	}

	maps.Copy(merged.Attributes, m.Attributes)
	r.results[a] = merged
}

func (r *applyRun) hasFailed(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errs[i] != nil
}

func (r *applyRun) setError(i int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs[i] = err
}

// emitEvent passes e on; finished is 1 if it ends an operation.
func (r *applyRun) emitEvent(e Event, finished int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finishedCount += finished
	e.Index = r.finishedCount
	e.Total = len(r.plan.operations)
	r.OnEvent(e)
}

// heartbeat says regularly that an operation still runs, and what it waits for.
type heartbeat struct {
	setReason func(string)
	stop      func()
}

func (r *applyRun) startHeartbeat(s Step, start time.Time) heartbeat {
	var mu sync.Mutex
	var what string
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(r.ProgressInterval)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				mu.Lock()
				detail := what
				mu.Unlock()
				r.emitEvent(Event{
					Step:    s,
					State:   Waiting,
					Elapsed: r.Now().Sub(start),
					Detail:  detail,
				}, 0)
			}
		}
	})

	return heartbeat{
		setReason: func(w string) {
			mu.Lock()
			defer mu.Unlock()
			what = w
		},
		stop: sync.OnceFunc(func() { close(quit); wg.Wait() }),
	}
}
