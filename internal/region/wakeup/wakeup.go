// SPDX-License-Identifier: Apache-2.0

// Package wakeup wakes the loops in which services of the region do their work in the background.
package wakeup

import (
	"context"
	"time"
)

// interval is how long a loop sleeps at most.
const interval = time.Second

// Signal wakes one loop. It may be sent concurrently.
type Signal chan struct{}

// New returns a signal that was not sent yet.
func New() Signal { return make(Signal, 1) }

// Send makes the loop run soon. It does not block. What is sent before the loop runs counts once.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Loop calls do after each signal and every second, until ctx ends.
func (s Signal) Loop(ctx context.Context, do func(context.Context)) {
	t := time.NewTicker(interval)
	defer t.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-s:
		case <-t.C:
		}

		do(ctx)
	}
}
