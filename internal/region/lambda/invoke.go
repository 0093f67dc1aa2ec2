// SPDX-License-Identifier: Apache-2.0

package lambda

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/lambda"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// How Lambda repeats an asynchronous invocation that failed: twice, after one and two minutes, within six hours (Lambda
// developer guide, "How Lambda handles errors and retries with asynchronous invocation").
const (
	maxAttempts     = 3
	retryDelay      = time.Minute
	maxEventAge     = 6 * time.Hour
	maxRunningAtOne = 10 // of the region, of all functions
)

// queuedEvent is an asynchronous invocation.
type queuedEvent struct {
	ID        string
	Function  string // name
	Body      string
	Attempts  int
	NotBefore time.Time
	Expires   time.Time
}

// invoke runs a function and waits for its answer, or queues the event.
func (s *Service) invoke(ctx context.Context, in *sdk.InvokeInput) (*sdk.InvokeOutput, error) {
	name := s.functionName(in.FunctionName)
	payload := in.Payload
	if len(payload) == 0 {
		payload = []byte("{}")
	}

	if !json.Valid(payload) {
		return nil, newErrorf(
			codeInvalidRequestContent,
			"Could not parse request body into json: the payload is not valid JSON",
		)
	}

	f, err := s.readFunction(name)
	if err != nil {
		return nil, err
	}

	switch sdkshape.String(in.InvocationType) {
	case lambdaEvent:
		wire.SetResponseStatus(ctx, http.StatusAccepted)
		return &sdk.InvokeOutput{}, s.enqueue(name, payload)
	case sdk.InvocationTypeDryRun:
		wire.SetResponseStatus(ctx, http.StatusNoContent)
		return &sdk.InvokeOutput{}, nil
	}

	o, err := s.runOnce(name, f, sdkshape.RandomUUID(s.cfg.Rand), payload) //nolint:contextcheck // an environment outlives the request that starts it
	if err != nil {
		s.logStartFailure(ctx, name, err)
		o = newFailure("Runtime.InvalidEntrypoint", err.Error())
	}

	out := &sdk.InvokeOutput{ExecutedVersion: new("$LATEST"), Payload: o.payload}
	if o.failed {
		out.FunctionError = new("Unhandled")
	}

	return out, nil
}

// readFunction returns a copy of a function.
func (s *Service) readFunction(name string) (f function, err error) {
	s.store.View(func() {
		found, missing := s.findFunction(&name)
		err = missing
		if missing == nil {
			f = *found
		}
	})

	return f, err
}

// InvokeForService queues an event for the function of an ARN on behalf of a service, such as events.amazonaws.com, for
// the resource source. The function's policy must allow it. A refusal is a [wire.Error].
func (s *Service) InvokeForService(_ context.Context, arn, service, source string, payload []byte) error {
	name := s.functionName(&arn)
	f, err := s.readFunction(name)
	if err != nil {
		return err
	}

	if !slices.ContainsFunc(f.Statements, func(p permission) bool { return p.allows(service, source, s.cfg.Account) }) {
		return newErrorf(
			codeAccessDenied,
			"the policy of function %s does not allow %s to invoke it for %s",
			name,
			service,
			source,
		)
	}

	return s.enqueue(name, payload)
}

// enqueue adds an event to the queue.
func (s *Service) enqueue(name string, payload []byte) error {
	now := s.cfg.Now().UTC()

	return s.store.Update(func() error {
		s.st.Queue = append(s.st.Queue, queuedEvent{
			ID:        sdkshape.RandomUUID(s.cfg.Rand),
			Function:  name,
			Body:      string(payload),
			NotBefore: now,
			Expires:   now.Add(maxEventAge),
		})

		return nil
	})
}

// Run runs the events in the queue until ctx ends. Then it ends all processes of functions.
func (s *Service) Run(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()

	var running sync.WaitGroup
	started := &startedEvents{ids: map[string]bool{}}

	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-t.C:
			s.pool.reap(s.cfg.Now())
		}

		for _, e := range s.dueEvents() {
			if ctx.Err() != nil || !started.add(e.ID) {
				continue
			}

			running.Go(func() {
				s.runQueued(ctx, e)
				started.remove(e.ID)
				s.wake.Send()
			})
		}
	}

	s.pool.close()
	running.Wait()
}

// startedEvents are the events of the queue that run now.
type startedEvents struct {
	mu  sync.Mutex
	ids map[string]bool
}

// add reports whether an event may run: it does not run yet, and not too many do.
func (e *startedEvents) add(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ids[id] || len(e.ids) >= maxRunningAtOne {
		return false
	}

	e.ids[id] = true

	return true
}

func (e *startedEvents) remove(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.ids, id)
}

// dueEvents returns the events of the queue that may run now.
func (s *Service) dueEvents() []queuedEvent {
	var out []queuedEvent
	now := s.cfg.Now()
	s.store.View(func() {
		for _, e := range s.st.Queue {
			if !e.NotBefore.After(now) {
				out = append(out, e)
			}
		}
	})

	return out
}

// runQueued makes one attempt of an event of the queue. An attempt that the end of the region interrupted is repeated
// after its start.
func (s *Service) runQueued(ctx context.Context, e queuedEvent) {
	f, err := s.readFunction(e.Function)
	if err != nil {
		return // deleted meanwhile
	}

	o, err := s.runOnce(e.Function, f, e.ID, []byte(e.Body)) //nolint:contextcheck // an environment outlives the request that starts it
	if ctx.Err() != nil {
		return
	}

	if err != nil {
		s.logStartFailure(ctx, e.Function, err)
	}

	if err := s.recordAttempt(e, err == nil && !o.failed); err != nil {
		s.cfg.Log.ErrorContext(ctx, "failed to save the state of lambda", slog.Any("error", err))
	}
}

func (s *Service) logStartFailure(ctx context.Context, name string, err error) {
	s.cfg.Log.ErrorContext(
		ctx,
		"failed to start a function",
		slog.String("function", name),
		slog.Any("error", err),
	)
}

// recordAttempt removes an event that succeeded or is given up, and delays another one.
func (s *Service) recordAttempt(e queuedEvent, succeeded bool) error {
	now := s.cfg.Now().UTC()

	return s.store.Update(func() error {
		i := slices.IndexFunc(s.st.Queue, func(other queuedEvent) bool { return other.ID == e.ID })
		if i < 0 {
			return nil
		}

		e.Attempts++
		e.NotBefore = now.Add(time.Duration(e.Attempts) * retryDelay)
		if succeeded || e.Attempts >= maxAttempts || e.NotBefore.After(e.Expires) {
			s.st.Queue = slices.Delete(s.st.Queue, i, i+1)
			return nil
		}

		s.st.Queue[i] = e

		return nil
	})
}

// runOnce runs a function with an event and waits for its end. It writes the lines that Lambda writes to the log.
func (s *Service) runOnce(name string, f function, id string, payload []byte) (outcome, error) {
	e, err := s.pool.acquire(name, f)
	if err != nil {
		return outcome{}, err
	}

	begin := s.cfg.Now()
	e.log.writeLines("START RequestId: " + id + " Version: $LATEST")
	o := e.run(&invocation{id: id, payload: payload, result: make(chan outcome, 1)})
	if o.failed {
		e.log.writeLines(strings.TrimSpace(string(o.payload)))
	}

	e.log.writeLines(
		"END RequestId: "+id,
		fmt.Sprintf(
			"REPORT RequestId: %s\tDuration: %.2f ms\tMemory Size: %d MB",
			id,
			s.cfg.Now().Sub(begin).Seconds()*1000,
			f.MemoryMB,
		),
	)

	s.pool.release(e)

	return o, nil
}
