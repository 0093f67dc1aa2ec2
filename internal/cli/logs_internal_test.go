// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/logs"
)

// TestNoLinesIsSaid: logs without lines are not silent.
func TestNoLinesIsSaid(t *testing.T) {
	now := time.Date(2026, 11, 22, 14, 8, 54, 0, time.UTC)
	got := describeNoLines(logs.Options{Since: 2 * time.Minute}, now)
	if got != "there are no lines since 2026-11-22 14:06:54 UTC; give a longer --since than 2m0s, or leave it out" {
		t.Errorf("got %q", got)
	}
	if got := describeNoLines(logs.Options{}, now); got != "there are no lines" {
		t.Errorf("got %q", got)
	}
	var out strings.Builder
	counted := &countingWriter{Writer: &out}
	fmt.Fprint(counted, "abc")
	if counted.written != 3 || out.String() != "abc" {
		t.Errorf("%d, %q", counted.written, out.String())
	}
}

// TestPreviewIsNoFailure: only a missing confirmation, however wrapped, ends a command with exit code 0.
func TestPreviewIsNoFailure(t *testing.T) {
	broken := errors.New("the lock was lost")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{errNotConfirmed, true},
		{withHint(errNotConfirmed, "your text is kept"), true},
		{errors.Join(fmt.Errorf("apply: %w", errNotConfirmed)), true},
		{errors.Join(errNotConfirmed, broken), false},
		{broken, false},
	} {
		if got := isPreview(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
