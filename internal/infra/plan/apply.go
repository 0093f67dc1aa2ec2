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
	// Want is what is to be, with every reference resolved; nil for a deletion.
	Want graph.Resource
	// Have is what exists; zero for a creation.
	Have Actual
	// Waiting tells the operator what is being waited for.
	Waiting func(what string)
}

// Made is what came of a creation or an update.
type Made struct {
	ID         string
	Attributes map[string]string
}

// Cloud carries out operations. Its errors have classes ([ClassOf]). Each method may be called again with the same task:
// after an error of class Throttled or NotYet, and by a later run after this one was killed.
type Cloud interface {
	// Create makes what t.Want says and returns as soon as others can refer to it.
	Create(ctx context.Context, t Task) (Made, error)
	// Update changes t.Have into t.Want.
	Update(ctx context.Context, t Task) (Made, error)
	// Delete removes t.Have and returns when what it used is free. That it is gone already is no error.
	Delete(ctx context.Context, t Task) error
	// Settle waits until what was made works in full. Nothing else waits for it.
	Settle(ctx context.Context, t Task, m Made) error
}

// Session is a [Cloud] that wants to know what a whole plan will ask of it, so that it can join calls, and when that has
// been done, so that it can see to it that the next reading shows it.
type Session interface {
	Begin(p Plan)
	End(ctx context.Context) error
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

// Walk says how a plan is applied.
type Walk struct {
	Cloud Cloud
	// Now is the clock.
	Now func() time.Time
	// Jitter returns a number in [0,1) for the spread of retries; nil means none.
	Jitter func() float64
	// Events is told of progress, from one goroutine at a time; nil means nobody.
	Events func(Event)
	// Applied is told what each resource that was made or changed is now to be, with every reference resolved; nil means
	// nobody is. It is called by many goroutines.
	Applied func(graph.Addr, graph.Resource)
	// Parallel operations at most. Default 1000: an operation mostly waits, and pacing calls is for the cloud to do.
	Parallel int
	// Patience is how long an operation is retried while AWS says "not yet". Default 15 minutes.
	Patience time.Duration
	// Heartbeat is how often a running operation says that it still waits. Default 10 s.
	Heartbeat time.Duration
}

// errUpstream marks an operation that was not tried because one it needs failed.
var errUpstream = errors.New("skipped: something it needs failed")

// walker is one run of Apply.
type walker struct {
	Walk
	p     Plan
	slots chan struct{}
	done  []chan struct{}
	errs  []error

	mu       sync.Mutex
	made     map[graph.Addr]Made
	finished int
}

// Apply carries p out, as many operations at a time as their order allows. A failure stops only what depends on it;
// every other failure is in the joined error. Making a new plan and applying it resumes a run that failed or was killed.
func (w Walk) Apply(ctx context.Context, p Plan) error {
	if len(p.ops) == 0 {
		return nil
	}
	r := &walker{Walk: w.withDefaults(), p: p, made: map[graph.Addr]Made{}}
	r.slots = make(chan struct{}, r.Parallel)
	r.done, r.errs = make([]chan struct{}, len(p.ops)), make([]error, len(p.ops))
	for i := range r.done {
		r.done[i] = make(chan struct{})
	}
	for _, a := range p.actual {
		r.made[a.Addr] = Made{ID: a.ID, Attributes: a.Attributes}
	}
	session, ok := w.Cloud.(Session)
	if ok {
		session.Begin(p)
	}
	var wg sync.WaitGroup
	for i := range p.ops {
		wg.Go(func() { r.run(ctx, i) })
	}
	wg.Wait()
	err := r.outcome(ctx)
	if ok && ctx.Err() == nil {
		err = errors.Join(err, session.End(ctx))
	}
	return err
}

// outcome joins what failed. A run that was stopped is no success even if all that it had begun went well.
func (r *walker) outcome(ctx context.Context) error {
	var errs []error
	skipped := 0
	for _, err := range r.errs {
		switch {
		case errors.Is(err, errUpstream):
			skipped++
		case err != nil:
			errs = append(errs, err)
		}
	}
	if err := ctx.Err(); err != nil && skipped > 0 {
		errs = append(errs, fmt.Errorf("stopped before %d of %d operations: %w", skipped, len(r.p.ops), err))
	}
	return errors.Join(errs...)
}

func (w Walk) withDefaults() Walk {
	if w.Parallel == 0 {
		w.Parallel = 1000
	}
	if w.Patience == 0 {
		w.Patience = 15 * time.Minute
	}
	if w.Heartbeat == 0 {
		w.Heartbeat = 10 * time.Second
	}
	if w.Jitter == nil {
		w.Jitter = func() float64 { return 0 }
	}
	if w.Applied == nil {
		w.Applied = func(graph.Addr, graph.Resource) {}
	}
	if w.Events == nil {
		w.Events = func(Event) {}
	}
	return w
}

// run waits for what operation i needs, does it, and lets go of those that wait for it.
func (r *walker) run(ctx context.Context, i int) {
	release := sync.OnceFunc(func() { close(r.done[i]) })
	defer release()
	s := r.p.Steps[r.p.ops[i].step]
	for _, dep := range r.p.order[i] {
		<-r.done[dep]
		if r.failed(dep) {
			r.fail(i, errUpstream)
			r.tell(Event{Step: s, State: Skipped}, 1)
			return
		}
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil { // also with a free slot: nothing begins any more
		r.fail(i, errUpstream)
		r.tell(Event{Step: s, State: Skipped, Detail: err.Error()}, 1)
		return
	}
	start := r.Now()
	r.tell(Event{Step: s, State: Started}, 0)
	pulse := r.beat(s, start)
	defer pulse.stop()
	err := r.do(ctx, i, pulse.waiting, release)
	if err != nil {
		r.fail(i, fmt.Errorf("%s %s: %w", s.Action, s.Addr, err))
		r.tell(Event{Step: s, State: Failed, Elapsed: r.Now().Sub(start), Detail: err.Error()}, 1)
		return
	}
	r.tell(Event{Step: s, State: Done, Elapsed: r.Now().Sub(start)}, 1)
}

// do carries operation i out, and calls release once others may go on.
func (r *walker) do(ctx context.Context, i int, waiting func(string), release func()) error {
	op := r.p.ops[i]
	s := r.p.Steps[op.step]
	t := Task{Step: s, Waiting: waiting}
	if s.have != nil {
		t.Have = *s.have
	}
	if op.destroy {
		return r.retry(ctx, s, waiting, func() error { return r.Cloud.Delete(ctx, t) })
	}
	want, err := r.resolve(s.node)
	if err != nil {
		return err
	}
	t.Want = want
	var m Made
	act := r.Cloud.Create
	if s.Action == Update {
		act = r.Cloud.Update
	} else {
		t.Have = Actual{}
	}
	err = r.retry(ctx, s, waiting, func() error {
		var e error
		m, e = act(ctx, t)
		return e
	})
	if err != nil {
		return err
	}
	r.keep(s.Addr, m)
	r.Applied(s.Addr, want)
	release()
	return r.retry(ctx, s, waiting, func() error { return r.Cloud.Settle(ctx, t, m) })
}

// resolve fills in what n refers to. That something is missing is a bug in the model or a driver, not in the input.
func (r *walker) resolve(n *graph.Node) (graph.Resource, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	want := graph.Resolve(n.Resource, func(s graph.Symbol) (string, bool) {
		m, ok := r.made[s.Addr]
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

// retry calls f until it succeeds, fails for good, or patience ends.
func (r *walker) retry(ctx context.Context, s Step, waiting func(string), f func() error) error {
	start := r.Now()
	for attempt := 0; ; attempt++ {
		err := f()
		class := ClassOf(err)
		if err == nil || class != Throttled && class != NotYet {
			return err
		}
		if r.Now().Sub(start) > r.Patience {
			return fmt.Errorf("gave up after %s: %w", r.Patience, err)
		}
		waiting(err.Error())
		r.tell(Event{Step: s, State: Retrying, Elapsed: r.Now().Sub(start), Detail: err.Error()}, 0)
		if e := pause(ctx, r.delay(class, attempt)); e != nil {
			return errors.Join(err, e)
		}
	}
}

// delay before the next attempt: it doubles, up to 20 s when throttled and 5 s when something is not there yet.
func (r *walker) delay(class Class, attempt int) time.Duration {
	limit := 5 * time.Second
	if class == Throttled {
		limit = 20 * time.Second
	}
	d := min(500*time.Millisecond<<min(attempt, 6), limit)
	return d/2 + time.Duration(float64(d)*r.Jitter())
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *walker) keep(a graph.Addr, m Made) {
	r.mu.Lock()
	defer r.mu.Unlock()
	merged := Made{ID: m.ID, Attributes: map[string]string{}}
	if old, ok := r.made[a]; ok && old.ID == m.ID {
		maps.Copy(merged.Attributes, old.Attributes)
	}
	maps.Copy(merged.Attributes, m.Attributes)
	r.made[a] = merged
}

func (r *walker) failed(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errs[i] != nil
}

func (r *walker) fail(i int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs[i] = err
}

// tell passes e on; finished is 1 if it ends an operation.
func (r *walker) tell(e Event, finished int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished += finished
	e.Index, e.Total = r.finished, len(r.p.ops)
	r.Events(e)
}

// pulse says regularly that an operation still runs, and what it waits for.
type pulse struct {
	waiting func(string)
	stop    func()
}

func (r *walker) beat(s Step, start time.Time) pulse {
	var mu sync.Mutex
	var what string
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(r.Heartbeat)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				mu.Lock()
				detail := what
				mu.Unlock()
				r.tell(Event{Step: s, State: Waiting, Elapsed: r.Now().Sub(start), Detail: detail}, 0)
			}
		}
	})
	return pulse{
		waiting: func(w string) {
			mu.Lock()
			defer mu.Unlock()
			what = w
		},
		stop: sync.OnceFunc(func() { close(quit); wg.Wait() }),
	}
}
