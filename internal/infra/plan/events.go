// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"sync"
	"time"
)

// State is the state of an operation in an [Event].
type State string

// The states.
const (
	Started  State = "started"
	Waiting  State = "waiting" // still running; sent at every ProgressInterval
	Done     State = "done"
	Failed   State = "failed"
	Skipped  State = "skipped"  // not started, because a dependency failed or the apply was interrupted
	Retrying State = "retrying" // AWS refused it for now
)

// Event reports the progress of one operation.
type Event struct {
	Step  Step
	State State
	// Elapsed is the time since the operation, or the attempt that is retried, started.
	Elapsed time.Duration
	// Detail is what the operation waits for, or the error.
	Detail string
	// Index counts the operations that have finished so far.
	Index int
	// Total is the number of operations of the plan.
	Total int
}

// emitEvent reports e; finished is the number of operations that it ends, 0 or 1.
func (r *applyRun) emitEvent(e Event, finished int) { r.events.emit(e, finished) }

// eventQueue delivers events in order, one at a time, and holds no lock while it does: a callback that blocks
// delays no operation but the one whose goroutine delivers.
type eventQueue struct {
	deliver func(Event)
	total   int // operations of the plan

	mu         sync.Mutex
	finished   int
	pending    []Event
	delivering bool // a goroutine delivers what is pending
}

// emit queues e. If no goroutine is delivering, the caller delivers until the queue is empty, so that
// all events are delivered when the last call returns.
func (q *eventQueue) emit(e Event, finished int) {
	q.mu.Lock()
	q.finished += finished
	e.Index = q.finished
	e.Total = q.total
	q.pending = append(q.pending, e)
	if q.delivering {
		q.mu.Unlock()
		return
	}

	q.delivering = true
	for len(q.pending) > 0 {
		next := q.pending[0]
		q.pending = q.pending[1:]
		q.mu.Unlock()
		q.deliver(next)
		q.mu.Lock()
	}

	q.delivering = false
	q.mu.Unlock()
}

// heartbeat emits an event at every ProgressInterval while an operation runs, with the reason it waits for.
type heartbeat struct {
	setReason func(string)
	stop      func()
}

func (r *applyRun) startHeartbeat(s Step, start time.Time) heartbeat {
	var mu sync.Mutex
	var reason string
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
				detail := reason
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
		setReason: func(text string) {
			mu.Lock()
			defer mu.Unlock()
			reason = text
		},
		stop: sync.OnceFunc(func() {
			close(quit)
			wg.Wait()
		}),
	}
}
