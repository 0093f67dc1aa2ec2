// SPDX-License-Identifier: Apache-2.0

// Package propagation waits until AWS sees what the caller has just created: AWS makes new resources visible to all of its
// servers within seconds, not at once. It is for single calls; plans repeat calls by package transport.
package propagation

import (
	"context"
	"slices"
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
	var pauses []time.Duration
	for pause := firstPause; len(pauses) < maxAttempts-1; pause = min(2*pause, maxPause) {
		pauses = append(pauses, pause)
	}

	return repeat(ctx, pauses, isNotSeen, call)
}

// AuthorizationLimit is how long [WaitForAuthorization] repeats a call. AWS documents that it might take up to five minutes
// until changes of the tags and aliases of a KMS key affect authorization.
const AuthorizationLimit = 6 * time.Minute

// authorizationPause is the time between two attempts of [WaitForAuthorization].
const authorizationPause = 10 * time.Second

// WaitForAuthorization repeats call while isDenied reports that policies do not allow it yet. It returns the last error of
// call when they do not within [AuthorizationLimit], or when ctx ends.
func WaitForAuthorization(ctx context.Context, isDenied func(error) bool, call func() error) error {
	pauses := slices.Repeat([]time.Duration{authorizationPause}, int(AuthorizationLimit/authorizationPause))

	return repeat(ctx, pauses, isDenied, call)
}

// repeat repeats call while isTemporary reports that its error will go away, with these pauses. It returns the last error of call.
func repeat(ctx context.Context, pauses []time.Duration, isTemporary func(error) bool, call func() error) error {
	for _, pause := range pauses {
		err := call()
		if err == nil || !isTemporary(err) || sleep.For(ctx, pause) != nil {
			return err
		}
	}

	return call()
}
