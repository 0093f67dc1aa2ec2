// SPDX-License-Identifier: Apache-2.0

// Package propagation waits until AWS sees what the caller has just created: AWS makes new resources visible to all of its
// servers within seconds, not at once. It is for single calls; plans repeat calls by package transport.
package propagation

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/sleep"
)

// The pauses between attempts. Together they last about a minute, as those of package transport.
const (
	firstPause  = 250 * time.Millisecond // doubles with each attempt
	maxPause    = 2 * time.Second
	maxAttempts = 32
)

// Wait repeats call, which is about a resource that the caller has just created, while isNotSeen reports that AWS does not see
// the resource. It returns the last error of call when AWS does not see the resource within about a minute, or when ctx ends.
func Wait(ctx context.Context, isNotSeen func(error) bool, call func() error) error {
	pause := firstPause

	for attempt := 1; ; attempt++ {
		err := call()
		if err == nil || !isNotSeen(err) || attempt == maxAttempts {
			return err
		}

		if sleep.For(ctx, pause) != nil {
			return err
		}

		pause = min(2*pause, maxPause)
	}
}
