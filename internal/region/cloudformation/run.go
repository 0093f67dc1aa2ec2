// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/record"
)

// errStopping ends work because the region's process ends: the next one takes it up.
var errStopping = errors.New("the region stops")

// kick makes Run look for operations.
func (s *Service) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run carries out operations until ctx ends, each stack's by itself.
func (s *Service) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		for _, id := range s.waiting() {
			inner, cancel := context.WithCancelCause(ctx)
			s.mu.Lock()
			s.running[id] = cancel
			s.mu.Unlock()
			wg.Go(func() {
				defer cancel(nil)
				s.drive(ctx, inner, id)
				s.mu.Lock()
				delete(s.running, id)
				s.mu.Unlock()
				s.kick() // there may be something new
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
	}
}

// waiting are the stacks with an operation that nobody drives.
func (s *Service) waiting() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	_ = s.book.Do(func() error { // it only reads
		for _, id := range record.Keys(s.st.Stacks) {
			if s.st.Stacks[id].Op != nil && s.running[id] == nil {
				out = append(out, id)
			}
		}
		return nil
	})
	return out
}

// interrupt ends what the stack's operation does now, with a reason.
func (s *Service) interrupt(id string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.running[id]; cancel != nil {
		cancel(why)
	}
}

// drive carries out the operation of one stack, phase by phase. work ends when the phase is to be cut short, ctx when the
// region's process ends.
func (s *Service) drive(ctx, work context.Context, id string) {
	for ctx.Err() == nil {
		st, op := s.view(id)
		if op == nil {
			return
		}
		phase := s.phases()[op.Kind+" "+op.Phase]
		if phase == nil {
			s.cfg.Log.ErrorContext(ctx, "a stack is in no known phase", slog.String("stack", id), slog.String("phase", op.Kind+" "+op.Phase))
			return
		}
		run := ctx
		if op.Phase == "forward" {
			run = work
		}
		limited, cancel := s.limited(run, st, op)
		err := phase(s.as(limited, op.Caller), st, op)
		cancel()
		if ctx.Err() != nil || errors.Is(err, errStopping) {
			return
		}
		if err != nil {
			s.cfg.Log.ErrorContext(ctx, "a stack's operation cannot go on", slog.String("stack", id), slog.Any("error", err))
			return
		}
	}
}

// limited gives a creation the time that the stack allows it.
func (s *Service) limited(ctx context.Context, st *stack, op *operation) (context.Context, context.CancelFunc) {
	if st.Timeout == 0 || op.Kind != opCreate || op.Phase != "forward" {
		return ctx, func() {}
	}
	left := op.Begun.Add(time.Duration(st.Timeout) * time.Minute).Sub(s.cfg.Now())
	return context.WithTimeoutCause(ctx, max(left, 0), errors.New("Stack creation time exceeded the specified timeout")) //nolint:staticcheck // CloudFormation's words
}

// view is a stack and its operation as they are now. Only what does not change during a phase may be read of them
// without the lock.
func (s *Service) view(id string) (st *stack, op *operation) {
	_ = s.book.Do(func() error { // it only reads
		if st = s.st.Stacks[id]; st != nil && st.Op != nil {
			op = st.Op
		}
		return nil
	})
	return st, op
}

type phase func(ctx context.Context, st *stack, op *operation) error

func (s *Service) phases() map[string]phase {
	return map[string]phase{
		opCreate + " forward":  s.createAll,
		opCreate + " rollback": s.rollbackCreate,
		opUpdate + " forward":  s.updateAll,
		opUpdate + " cleanup":  s.cleanUp,
		opUpdate + " rollback": s.rollbackUpdate,
		opUpdate + " undo":     s.cleanUpRollback,
		opDelete + " delete":   s.deleteAll,
	}
}

// side is what a stack is being brought to.
type side struct {
	edition
	st       *stack
	op       *operation
	rollback bool
}

// sideOf reads the content's template, which was read before without an error.
func (s *Service) sideOf(st *stack, op *operation, c, before content) (side, error) {
	t, err := Parse(c.Body)
	if err != nil {
		return side{}, fmt.Errorf("read the template of %s again: %w", st.Name, err)
	}
	old := &Template{}
	if before.Body != "" {
		if old, err = Parse(before.Body); err != nil {
			return side{}, fmt.Errorf("read the former template of %s again: %w", st.Name, err)
		}
	}
	return side{edition: edition{old, t, before, c}, st: st, op: op}, nil
}

// nodes are the resources of a side that its conditions allow, with what each waits for.
func (s *Service) nodes(sd side) (map[string][]string, error) {
	sc := s.scopeOf(sd.st, sd.after, sd.t)
	out := map[string][]string{}
	for _, name := range record.Keys(sd.t.Resources) {
		if c := sd.t.Resources[name].Condition; c != "" {
			yes, err := sc.condition(c)
			if err != nil {
				return nil, err
			}
			if !yes {
				continue
			}
		}
		out[name] = sd.t.after(name)
	}
	return out, nil
}

// stage walks the resources of a side forward.
func (s *Service) stage(ctx context.Context, sd side) (map[string]error, error) {
	var nodes map[string][]string
	err := s.book.Do(func() (err error) {
		nodes, err = s.nodes(sd)
		return err
	})
	if err != nil {
		return nil, err
	}
	failures := order{after: nodes, stop: !sd.rollback}.walk(ctx, func(ctx context.Context, name string) error { return s.step(ctx, sd, name) })
	if ctx.Err() != nil && len(failures) == 0 {
		failures[""] = context.Cause(ctx)
	}
	return failures, nil
}

func (s *Service) createAll(ctx context.Context, st *stack, op *operation) error {
	sd, err := s.sideOf(st, op, op.New, content{})
	if err != nil {
		return err
	}
	failures, err := s.stage(ctx, sd)
	if err != nil {
		return err
	}
	return s.book.Do(func() error {
		if st.Op != op || op.Kind != opCreate {
			return nil // a deletion has taken over
		}
		if len(failures) == 0 {
			failures = s.conclude(sd)
		}
		if len(failures) == 0 {
			st.content, st.Op = op.New, nil
			s.setStack(st, "CREATE"+complete, "")
			return nil
		}
		st.content = op.New
		why := reasonOf("create", failures)
		switch {
		case st.DisableRollback || st.OnFailure == "DO_NOTHING":
			st.Op = nil
			s.setStack(st, "CREATE"+failed, why)
		case st.OnFailure == "DELETE":
			op.Kind, op.Phase = opDelete, "delete"
			s.setStack(st, "DELETE"+inProgress, why+" Delete requested by user.")
		default:
			op.Phase = "rollback"
			s.setStack(st, "ROLLBACK"+inProgress, why+" Rollback requested by user.")
		}
		return nil
	})
}

// reasonOf says what failed.
func reasonOf(verb string, failures map[string]error) string {
	if err, ok := failures[""]; ok {
		return err.Error() + "."
	}
	return fmt.Sprintf("The following resource(s) failed to %s: [%s].", verb, strings.Join(record.Keys(failures), ", "))
}

// reasonOfUpdate says what an update failed to make and to change. The caller is inside the book.
func reasonOfUpdate(st *stack, failures map[string]error) string {
	created, updated := map[string]error{}, map[string]error{}
	for name, err := range failures {
		if r := st.Resources[name]; r != nil && r.Status == "CREATE"+failed {
			created[name] = err
		} else {
			updated[name] = err
		}
	}
	var out []string
	if len(created) > 0 {
		out = append(out, reasonOf("create", created))
	}
	if len(updated) > 0 {
		out = append(out, reasonOf("update", updated))
	}
	return strings.Join(out, " ")
}

// conclude evaluates the outputs into the side's stack. The caller is inside the book.
func (s *Service) conclude(sd side) map[string]error {
	outputs, imports, err := s.outputsOf(sd)
	if err != nil {
		return map[string]error{"": err}
	}
	sd.op.New.Outputs, sd.op.New.Imports = outputs, imports
	return nil
}

// rollbackCreate takes away what a failed creation has made.
func (s *Service) rollbackCreate(ctx context.Context, st *stack, op *operation) error {
	failures := s.removeAll(ctx, st, op, true)
	if ctx.Err() != nil {
		return errStopping
	}
	return s.book.Do(func() error {
		st.Op = nil
		if len(failures) > 0 {
			s.setStack(st, "ROLLBACK"+failed, reasonOf("delete", failures))
			return nil
		}
		s.setStack(st, "ROLLBACK"+complete, "")
		return nil
	})
}

// deleteAll deletes a stack.
func (s *Service) deleteAll(ctx context.Context, st *stack, op *operation) error {
	failures := s.removeAll(ctx, st, op, false)
	if ctx.Err() != nil {
		return errStopping
	}
	return s.book.Do(func() error {
		st.Op = nil
		if len(failures) > 0 {
			s.setStack(st, "DELETE"+failed, strings.Replace(reasonOf("delete", failures), "].", "]. ", 1))
			return nil
		}
		st.ChangeSets, st.Stuck = nil, nil
		s.setStack(st, deleted, "")
		return nil
	})
}
