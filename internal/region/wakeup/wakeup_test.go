// SPDX-License-Identifier: Apache-2.0

package wakeup_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/wakeup"
)

// TestLoop: a loop runs once after signals that came before it, and every second without one.
func TestLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signal := wakeup.New()
		signal.Send()
		signal.Send()

		ctx, stop := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer stop()
		start := time.Now()
		var at []time.Duration
		signal.Loop(ctx, func(context.Context) { at = append(at, time.Since(start)) })

		if want := []time.Duration{0, time.Second, 2 * time.Second}; len(at) != 3 || at[0] != want[0] || at[1] != want[1] || at[2] != want[2] {
			t.Errorf("the loop ran after %v, want %v", at, want)
		}
	})
}
