// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// checkPauses repeats a task with an interval of 10 s that returns one answer after another, and checks the pauses after them, in
// seconds.
func checkPauses(t *testing.T, answers []error, want []time.Duration) {
	t.Helper()
	a := testAgent(t)
	var pauses []time.Duration
	end := errors.New("enough")
	wanted := len(answers)
	a.Wait = func(_ context.Context, d time.Duration) error {
		if pauses = append(pauses, d/time.Second); len(pauses) == wanted {
			return end
		}
		return nil
	}
	do := func(context.Context) error {
		err := answers[0]
		answers = answers[1:]
		return err
	}
	if err := (periodicTask{"test", 10 * time.Second, do}).repeat(t.Context(), a, time.Minute); !errors.Is(err, end) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, pauses); diff != "" {
		t.Errorf("pauses in seconds (-want +got):\n%s", diff)
	}
}

// TestChoreIsTriedAgainSoon checks that a task that fails during the bootstrap is retried before
// its full interval has passed.
func TestChoreIsTriedAgainSoon(t *testing.T) {
	answers := []error{
		newNotReadyError("no API"), newNotReadyError("no API"), errors.New("refused"), errors.New("refused"), errors.New("refused"),
		nil, nil, errors.New("refused"), nil,
	}
	checkPauses(t, answers, []time.Duration{1, 2, 4, 8, 10, 10, 10, 1, 10})
}

// TestStepsFollowSoon: what a task begins is continued after a second, not at the next interval, and a task says when it is due.
func TestStepsFollowSoon(t *testing.T) {
	step := waitForNextDecision(nil, "the data was set aside")
	waits := newNotReadyError("no quorum yet")
	answers := []error{nil, step, step, waits, waits, againError{after: 2 * time.Second}, againError{after: time.Minute}, waits, nil}
	checkPauses(t, answers, []time.Duration{10, 1, 1, 1, 2, 2, 10, 1, 10})
}
