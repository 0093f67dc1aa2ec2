// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestCancelledStageReportsNoFailure checks that a stage that was cancelled, because another one failed, does not report a
// failure: operators read the last failure on the console as the cause.
func TestCancelledStageReportsNoFailure(t *testing.T) {
	var console bytes.Buffer

	a := &Agent{Report: &Reporter{
		Open: func() (io.WriteCloser, error) { return nopCloser{&console}, nil },
		Log:  slog.New(slog.DiscardHandler),
		Now:  time.Now,
	}}
	ctx, cancel := context.WithCancel(t.Context())

	run := map[string]func(string) error{
		"secrets": func(name string) error {
			return a.runCancellableStage(ctx, name, func() error { return errors.New("signal: killed") })
		},
		"volume": func(name string) error {
			return a.retryUntilReady(ctx, name, func() error { return errors.New("signal: killed") })
		},
	}

	for name, do := range run {
		console.Reset()

		if err := do(name); err == nil || !strings.Contains(console.String(), `"state":"failed"`) {
			t.Errorf("%s, not cancelled: %v, console: %s", name, err, console.String())
		}
	}

	cancel()

	for name, do := range run {
		console.Reset()

		err := do(name)
		if !errors.Is(err, context.Canceled) || strings.Contains(console.String(), `"state":"failed"`) {
			t.Errorf("%s, cancelled: %v, console: %s", name, err, console.String())
		}
	}
}
