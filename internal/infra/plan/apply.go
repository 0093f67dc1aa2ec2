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

// Task is one operation, as passed to a [Cloud].
type Task struct {
	Step Step
	// Desired is the desired resource with every reference resolved; nil for a deletion.
	Desired graph.Resource
	// Actual is the existing resource; zero for a creation.
	Actual ActualResource
	// ReportWaiting shows the operator what the operation waits for.
	ReportWaiting func(what string)
}

// StepResult is the result of a creation or an update.
type StepResult struct {
	// ID is the resource's identity in AWS.
	ID string
	// Attributes are the values that AWS assigned, by CloudFormation's name.
	Attributes map[string]string
}

// Cloud executes operations. Its errors have classes, see [ErrorClassOf]. Its methods are called
// concurrently, and each may be called again with the same task: after an error of class Throttled or
// NotReady, and by a later run after this one was killed.
type Cloud interface {
	// Create creates t.Desired and returns as soon as other resources can refer to it.
	Create(ctx context.Context, t Task) (StepResult, error)
	// Update changes t.Actual to t.Desired.
	Update(ctx context.Context, t Task) (StepResult, error)
	// Delete deletes t.Actual and returns when the resources that it used are free. A resource that is
	// already deleted is not an error.
	Delete(ctx context.Context, t Task) error
	// WaitReady waits until the created or updated resource is fully functional. Dependent operations do not
	// wait for it.
	WaitReady(ctx context.Context, t Task, result StepResult) error
}

// BatchSession is implemented by a [Cloud] that joins calls.
type BatchSession interface {
	// BeginPlan is called before the first operation, so that the cloud knows which calls it can join.
	BeginPlan(p Plan)
	// EndPlan is called after the last operation, unless the apply was interrupted. It returns once a new
	// read shows all changes.
	EndPlan(ctx context.Context) error
}

// Applier applies plans. Cloud and Now are required.
type Applier struct {
	Cloud Cloud
	// Now is the clock.
	Now func() time.Time
	// Jitter returns a number in [0,1) that spreads retries; nil: no jitter.
	Jitter func() float64
	// OnEvent receives progress, one event at a time and in order, with no lock held; nil: none. All events
	// are delivered before Apply returns. Operations do not wait for it.
	OnEvent func(Event)
	// OnApplied receives each created or changed resource with every reference resolved; nil: none. It is
	// called concurrently.
	OnApplied func(graph.Addr, graph.Resource)
	// MaxParallel is the maximal number of concurrent operations. Default 1000: an operation mostly waits,
	// and the cloud limits the rate of its calls itself.
	MaxParallel int
	// RetryTimeout is how long an operation is retried after errors of class Throttled and NotReady. Default
	// 15 minutes.
	RetryTimeout time.Duration
	// ProgressInterval is the interval of Waiting events of a running operation. Default 10 seconds.
	ProgressInterval time.Duration
}

// errDependencyFailed marks an operation that was not started because a dependency failed.
var errDependencyFailed = errors.New("skipped: a dependency failed")

// applyRun is one run of Apply.
type applyRun struct {
	Applier
	plan   Plan
	slots  chan struct{}   // limits concurrency to MaxParallel
	done   []chan struct{} // by operation; closed once dependent operations can start
	events *eventQueue

	mu      sync.Mutex
	errs    []error // by operation
	results map[graph.Addr]StepResult
}

// Apply executes p, with as many concurrent operations as their order allows. A failure stops only the
// operations that depend on the failed one; the returned error joins all failures. Computing a new plan and
// applying it resumes a run that failed or was killed.
func (w Applier) Apply(ctx context.Context, p Plan) error {
	if len(p.operations) == 0 {
		return nil
	}

	r := &applyRun{Applier: w.withDefaults(), plan: p, results: map[graph.Addr]StepResult{}}
	r.events = &eventQueue{deliver: r.OnEvent, total: len(p.operations)}
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

// joinErrors joins the errors of all operations. An interrupted run is an error even if every operation that
// it started succeeded.
func (r *applyRun) joinErrors(ctx context.Context) error {
	stopped := r.interruption(ctx)
	errs := []error{stopped}

	for _, err := range r.errs {
		isPart := errors.Is(err, errDependencyFailed) || stopped != nil && isCancellation(err)
		if err != nil && !isPart {
			errs = append(errs, err)
		}
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

// runOperation waits for the dependencies of operation i, executes it and releases the operations that depend
// on it.
func (r *applyRun) runOperation(ctx context.Context, i int) {
	release := sync.OnceFunc(func() { close(r.done[i]) })
	defer release()
	s := r.plan.Steps[r.plan.operations[i].step]

	for _, dep := range r.plan.dependencies[i] {
		<-r.done[dep]
		if r.hasFailed(dep) && dep != r.plan.operations[i].parent {
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

	if err := ctx.Err(); err != nil { // after an interrupt no operation starts, even if a slot is free
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

// executeOperation executes operation i, and calls release once dependent operations can start.
func (r *applyRun) executeOperation(ctx context.Context, i int, waiting func(string), release func()) error {
	op := r.plan.operations[i]
	s := r.plan.Steps[op.step]
	t := Task{Step: s, ReportWaiting: waiting}
	if s.actual != nil {
		t.Actual = *s.actual
	}

	if op.parent >= 0 && !r.hasFailed(op.parent) {
		return nil // AWS deleted it with its parent
	}

	if op.isDestroy {
		return r.retryOperation(ctx, s, waiting, func() error { return r.Cloud.Delete(ctx, t) })
	}

	desired, err := r.resolveReferences(s.desired)
	if err != nil {
		return err
	}

	var result StepResult
	change := r.Cloud.Create
	if s.Action == Update {
		change = r.Cloud.Update
		desired = keepFrom(desired, s.actual.Resource, s.released)
	} else {
		t.Actual = ActualResource{}
	}

	t.Desired = desired
	err = r.retryOperation(ctx, s, waiting, func() error {
		var e error
		result, e = change(ctx, t)
		return e
	})
	if err != nil {
		return err
	}

	r.recordResult(s.Addr, result)
	r.OnApplied(s.Addr, desired)
	release()

	return r.retryOperation(ctx, s, waiting, func() error { return r.Cloud.WaitReady(ctx, t, result) })
}

// resolveReferences returns n's resource with all references resolved. A missing value is a bug of the model
// or of a driver, not of the input.
func (r *applyRun) resolveReferences(n *graph.Node) (graph.Resource, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	desired := graph.Resolve(n.Resource, func(s graph.Symbol) (string, bool) {
		m, ok := r.results[s.Addr]
		if !ok || s.Attribute == "" {
			return m.ID, ok && m.ID != ""
		}

		v, ok := m.Attributes[s.Attribute]

		return v, ok
	})
	if missing := graph.Symbols(desired); len(missing) > 0 {
		return nil, fmt.Errorf("no value for %s", missing[0])
	}

	return desired, nil
}

// retryOperation calls f until it succeeds, fails with another class than Throttled or NotReady, or
// RetryTimeout has passed.
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

// retryDelay returns the time before the next attempt: exponential backoff from 0.5 s, up to 20 s when
// throttled and 5 s when not ready, with jitter.
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
