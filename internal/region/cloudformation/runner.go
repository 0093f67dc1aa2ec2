// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// errStopping ends an operation because the region's process ends. The next process resumes the operation.
var errStopping = errors.New("the region stops")

// Run carries out the operations of stacks until ctx ends, each stack in a goroutine of its own.
func (s *Service) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		for _, id := range s.pendingStacks() {
			inner, cancel := context.WithCancelCause(ctx)
			s.mu.Lock()
			s.cancelFuncs[id] = cancel
			s.mu.Unlock()
			wg.Go(func() {
				defer cancel(nil)
				s.runStackOperation(ctx, inner, id)
				s.mu.Lock()
				delete(s.cancelFuncs, id)
				s.mu.Unlock()
				s.wake.Send() // another operation may be pending
			})
		}

		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
	}
}

// pendingStacks returns the IDs of the stacks with an operation that is not running.
func (s *Service) pendingStacks() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	s.store.View(func() {
		for _, id := range sdkshape.SortedKeys(s.state.Stacks) {
			if s.state.Stacks[id].Op != nil && s.cancelFuncs[id] == nil {
				out = append(out, id)
			}
		}
	})

	return out
}

// cancelRunning cancels the running operation of a stack. It takes mu, so the caller must not hold the
// store's lock.
func (s *Service) cancelRunning(id string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.cancelFuncs[id]; cancel != nil {
		cancel(why)
	}
}

// runStackOperation carries out the operation of one stack, phase by phase. work is cancelled to cut the
// forward phase short; ctx ends with the region's process.
func (s *Service) runStackOperation(ctx, work context.Context, id string) {
	for ctx.Err() == nil {
		st, op := s.currentOperation(id)
		if op == nil {
			return
		}

		phase := s.phaseFuncs()[op.Kind+" "+op.Phase]
		if phase == nil {
			s.cfg.Log.ErrorContext(
				ctx,
				"a stack is in an unknown phase",
				slog.String("stack", id),
				slog.String("phase", op.Kind+" "+op.Phase),
			)

			return
		}

		run := ctx
		if op.Phase == "forward" {
			run = work
		}

		limited, cancel := s.withStackTimeout(run, st, op)
		err := phase(s.withStackCaller(limited, op.Caller), st, op)
		cancel()
		if ctx.Err() != nil || errors.Is(err, errStopping) {
			return
		}

		if err != nil {
			s.cfg.Log.ErrorContext(
				ctx,
				"the operation of a stack failed",
				slog.String("stack", id),
				slog.Any("error", err),
			)

			return
		}
	}
}

// withStackTimeout limits a creation to the stack's TimeoutInMinutes.
func (s *Service) withStackTimeout(
	ctx context.Context,
	st *stack,
	op *stackOperation,
) (context.Context, context.CancelFunc) {
	if st.Timeout == 0 || op.Kind != opCreate || op.Phase != "forward" {
		return ctx, func() {}
	}

	left := op.Begun.Add(time.Duration(st.Timeout) * time.Minute).Sub(s.cfg.Now())
	return context.WithTimeoutCause(
		ctx,
		max(left, 0),
		errors.New("Stack creation time exceeded the specified timeout"),
	)
}

// currentOperation returns a stack and its operation. Without the lock, the caller may read only what does
// not change during a phase.
func (s *Service) currentOperation(id string) (st *stack, op *stackOperation) {
	s.store.View(func() {
		if st = s.state.Stacks[id]; st != nil && st.Op != nil {
			op = st.Op
		}
	})

	return st, op
}

type phaseFunc func(ctx context.Context, st *stack, op *stackOperation) error

func (s *Service) phaseFuncs() map[string]phaseFunc {
	return map[string]phaseFunc{
		opCreate + " forward":  s.createAll,
		opCreate + " rollback": s.rollBackCreate,
		opUpdate + " forward":  s.updateAll,
		opUpdate + " cleanup":  s.cleanUp,
		opUpdate + " rollback": s.rollBackUpdate,
		opUpdate + " undo":     s.cleanUpRollback,
		opDelete + " delete":   s.deleteAll,
	}
}

// stackTransition is the change of a stack from one content to another.
type stackTransition struct {
	templatePair
	stack     *stack
	operation *stackOperation
	rollback  bool
}

// newTransition parses the two templates of a transition. They were parsed before, without an error.
func (s *Service) newTransition(
	st *stack,
	op *stackOperation,
	c, before stackContent,
) (stackTransition, error) {
	t, err := parseTemplate(c.Body)
	if err != nil {
		return stackTransition{}, fmt.Errorf("parse the saved template of %s: %w", st.Name, err)
	}

	old := &template.Template{}
	if before.Body != "" {
		if old, err = parseTemplate(before.Body); err != nil {
			return stackTransition{}, fmt.Errorf("parse the previous template of %s: %w", st.Name, err)
		}
	}

	return stackTransition{templatePair: templatePair{old, t, before, c}, stack: st, operation: op}, nil
}

// enabledResources returns the resources of the new template whose conditions are true, with their
// dependencies. The caller holds the store's lock.
func (s *Service) enabledResources(sd stackTransition) (map[string][]string, error) {
	sc := s.newScope(sd.stack, sd.after, sd.newTemplate)
	out := map[string][]string{}
	for _, name := range sdkshape.SortedKeys(sd.newTemplate.Resources) {
		if c := sd.newTemplate.Resources[name].Condition; c != "" {
			yes, err := sc.EvalCondition(c)
			if err != nil {
				return nil, err
			}

			if !yes {
				continue
			}
		}

		out[name] = sd.newTemplate.DependenciesOf(name)
	}

	return out, nil
}

// applyResources applies the resources of the new template in the order of their dependencies. It returns the
// failures by logical ID; the key "" is for a failure of the stack.
func (s *Service) applyResources(ctx context.Context, sd stackTransition) (map[string]error, error) {
	var nodes map[string][]string
	err := s.store.WithLock(func() (err error) {
		nodes, err = s.enabledResources(sd)
		return err
	})
	if err != nil {
		return nil, err
	}

	failures := dependencyGraph{
		dependencies:  nodes,
		stopOnFailure: !sd.rollback,
	}.walk(
		ctx,
		func(ctx context.Context, name string) error { return s.applyResource(ctx, sd, name) },
	)
	if ctx.Err() != nil && len(failures) == 0 {
		failures[""] = context.Cause(ctx)
	}

	return failures, nil
}

func (s *Service) createAll(ctx context.Context, st *stack, op *stackOperation) error {
	sd, err := s.newTransition(st, op, op.New, stackContent{})
	if err != nil {
		return err
	}

	failures, err := s.applyResources(ctx, sd)
	if err != nil {
		return err
	}

	return s.store.WithLock(func() error {
		if st.Op != op || op.Kind != opCreate {
			return nil // a deletion has replaced the creation
		}

		if len(failures) == 0 {
			failures = s.storeOutputs(sd)
		}

		if len(failures) == 0 {
			st.stackContent = op.New
			st.Op = nil
			s.setStackStatus(st, "CREATE"+suffixComplete, "")

			return nil
		}

		st.stackContent = op.New
		why := failureReason("create", failures)

		switch {
		case st.DisableRollback || st.OnFailure == "DO_NOTHING":
			st.Op = nil
			s.setStackStatus(st, "CREATE"+suffixFailed, why)
		case st.OnFailure == "DELETE":
			op.Kind = opDelete
			op.Phase = "delete"
			s.setStackStatus(st, "DELETE"+suffixInProgress, why+" Delete requested by user.")

		default:
			op.Phase = "rollback"
			s.setStackStatus(st, "ROLLBACK"+suffixInProgress, why+" Rollback requested by user.")
		}

		return nil
	})
}

// failureReason returns the status reason for failures.
func failureReason(verb string, failures map[string]error) string {
	if err, ok := failures[""]; ok {
		return err.Error() + "."
	}

	return fmt.Sprintf(
		"The following resource(s) failed to %s: [%s].",
		verb,
		strings.Join(sdkshape.SortedKeys(failures), ", "),
	)
}

// deletionFailureReason is [failureReason] for resources that could not be deleted, with the space that CloudFormation has
// at its end.
func deletionFailureReason(failures map[string]error) string {
	return strings.Replace(failureReason("delete", failures), "].", "]. ", 1)
}

// updateFailureReason returns the status reason of a failed update, which lists created and updated resources
// apart. The caller holds the store's lock.
func updateFailureReason(st *stack, failures map[string]error) string {
	created := map[string]error{}
	updated := map[string]error{}
	for name, err := range failures {
		if r := st.Resources[name]; r != nil && r.Status == "CREATE"+suffixFailed {
			created[name] = err
		} else {
			updated[name] = err
		}
	}

	var out []string
	if len(created) > 0 {
		out = append(out, failureReason("create", created))
	}

	if len(updated) > 0 {
		out = append(out, failureReason("update", updated))
	}

	return strings.Join(out, " ")
}

// storeOutputs evaluates the outputs into the operation's new content. The caller holds the store's lock.
func (s *Service) storeOutputs(sd stackTransition) map[string]error {
	outputs, imports, err := s.evaluateOutputs(sd)
	if err != nil {
		return map[string]error{"": err}
	}

	sd.operation.New.Outputs = outputs
	sd.operation.New.Imports = imports

	return nil
}

// rollBackCreate deletes the resources of a failed creation.
func (s *Service) rollBackCreate(ctx context.Context, st *stack, op *stackOperation) error {
	failures := s.deleteResources(ctx, st, op, true)
	if ctx.Err() != nil {
		return errStopping
	}

	return s.store.WithLock(func() error {
		st.Op = nil
		if len(failures) > 0 {
			s.setStackStatus(st, "ROLLBACK"+suffixFailed, deletionFailureReason(failures))
			return nil
		}

		s.setStackStatus(st, "ROLLBACK"+suffixComplete, "")

		return nil
	})
}

// deleteAll deletes a stack.
func (s *Service) deleteAll(ctx context.Context, st *stack, op *stackOperation) error {
	failures := s.deleteResources(ctx, st, op, false)
	if ctx.Err() != nil {
		return errStopping
	}

	return s.store.WithLock(func() error {
		st.Op = nil
		if len(failures) > 0 {
			s.setStackStatus(st, "DELETE"+suffixFailed, deletionFailureReason(failures))
			return nil
		}

		maps.DeleteFunc(st.ChangeSets, func(_ string, cs *changeSet) bool { return !cs.isExecuted() })
		st.Stuck = nil
		s.setStackStatus(st, statusDeleted, "")

		return nil
	})
}
