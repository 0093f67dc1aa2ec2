// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestFailuresWithNumbers: a task that fails with another number in its message each time has a condition, which changes only with what
// the message says. Seen to fail while failures were counted by their message: there was never a condition.
func TestFailuresWithNumbers(t *testing.T) {
	t.Parallel()
	a := testAgent(t)
	var log bytes.Buffer
	a.Log = slog.New(slog.NewTextHandler(&log, nil))
	failures := failureLog{agent: a, task: "certificates"}
	cause := func() string {
		t.Helper()
		found := a.conditions.Conditions()
		if len(found) == 0 {
			return ""
		}

		return found[0].Cause
	}
	for port := range reportedFailures {
		if got := cause(); got != "" {
			t.Errorf("after %d failures: %s", port, got)
		}

		failures.note(fmt.Errorf("read tcp 127.0.0.1:%d: connection reset", 40000+port))
	}

	first := cause()
	if !strings.Contains(first, "connection reset") {
		t.Errorf("the condition's cause is %q", first)
	}

	failures.note(fmt.Errorf("read tcp 127.0.0.1:%d: connection reset", 50000))
	if got := cause(); got != first {
		t.Errorf("another number changes the condition from %q to %q", first, got)
	}

	failures.note(errors.New("no route to host"))
	if got := cause(); !strings.Contains(got, "no route") {
		t.Errorf("another failure: the condition's cause is %q", got)
	}

	failures.note(nil)
	if got := cause(); got != "" {
		t.Errorf("after a success: %q", got)
	}

	if got := strings.Count(log.String(), "task failed"); got != reportedFailures+2 {
		t.Errorf("%d lines are logged: %s", got, &log)
	}
}
