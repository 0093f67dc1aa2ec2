// SPDX-License-Identifier: Apache-2.0

// Package sleep pauses, in real time, until a context ends.
package sleep

import (
	"context"
	"time"
)

// For pauses for d. It returns the error of ctx if ctx is cancelled first.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
