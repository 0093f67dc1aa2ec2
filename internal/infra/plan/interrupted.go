// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
)

// InterruptedError is returned for a run that was stopped before its end, by Ctrl-C or because its lock was
// lost. It wraps the context's error.
type InterruptedError struct {
	// Done counts the operations that succeeded.
	Done int
	// InFlight counts the operations that had started: AWS may or may not have carried them out.
	InFlight int
	// Total is the number of operations of the plan.
	Total int
	// Follow says who continues what is in flight; empty: nobody.
	Follow string
	// Cause is the context's error.
	Cause error
}

// Error returns how far the run got.
func (e *InterruptedError) Error() string {
	text := fmt.Sprintf("interrupted: %d of %d done, %d in flight", e.Done, e.Total, e.InFlight)
	if e.Follow != "" {
		return text + "; " + e.Follow
	}

	return text + "; rerun to resume"
}

// Unwrap returns the context's error.
func (e *InterruptedError) Unwrap() error { return e.Cause }

// interruption returns how far the run got, if ctx ended before all operations had.
func (r *applyRun) interruption(ctx context.Context) error {
	stopped := &InterruptedError{Total: len(r.plan.operations), Cause: ctx.Err()}
	if stopped.Cause == nil {
		return nil
	}

	notStarted := 0

	for _, err := range r.errs {
		switch {
		case err == nil:
			stopped.Done++
		case errors.Is(err, errDependencyFailed):
			notStarted++
		case isCancellation(err):
			stopped.InFlight++
		}
	}

	if notStarted+stopped.InFlight == 0 {
		return nil // it ended as it would have ended anyway
	}

	return stopped
}

// isCancellation reports whether an operation failed because the run was interrupted.
func isCancellation(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
