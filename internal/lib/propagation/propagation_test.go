// SPDX-License-Identifier: Apache-2.0

package propagation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/propagation"
)

var (
	errNotSeen = errors.New("not seen")
	errDenied  = errors.New("denied")
)

// TestWait: a call is repeated while AWS does not see a resource, for about a minute. Other errors are final.
func TestWait(t *testing.T) {
	for name, tc := range map[string]struct {
		answers []error // of the first calls; the last one is repeated
		calls   int
		want    error
		least   time.Duration
		most    time.Duration
	}{
		"seen at once":  {answers: []error{nil}, calls: 1},
		"seen late":     {answers: []error{errNotSeen, errNotSeen, nil}, calls: 3, least: 750 * time.Millisecond, most: 750 * time.Millisecond},
		"never seen":    {answers: []error{errNotSeen}, calls: 32, want: errNotSeen, least: 55 * time.Second, most: 65 * time.Second},
		"another error": {answers: []error{errNotSeen, errDenied}, calls: 2, want: errDenied, least: 250 * time.Millisecond, most: 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls, begin := 0, time.Now()
				err := propagation.Wait(
					t.Context(),
					func(err error) bool { return errors.Is(err, errNotSeen) },
					func() error {
						calls++
						return tc.answers[min(calls, len(tc.answers))-1]
					},
				)
				if took := time.Since(begin); !errors.Is(err, tc.want) || calls != tc.calls || took < tc.least || took > tc.most {
					t.Errorf("%v after %d calls in %s, want %v after %d in %s to %s", err, calls, took, tc.want, tc.calls, tc.least, tc.most)
				}
			})
		})
	}
}

// TestWaitEndsWithItsContext: the error is that of the call, which says what is missing.
func TestWaitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := propagation.Wait(ctx, func(error) bool { return true }, func() error {
		cancel()
		return errNotSeen
	})
	if !errors.Is(err, errNotSeen) {
		t.Errorf("got %v", err)
	}
}

// TestWaitForAuthorization: a call is repeated for longer than AWS needs to apply the tags of a key. Other errors are final.
func TestWaitForAuthorization(t *testing.T) {
	for name, tc := range map[string]struct {
		allowedAfter time.Duration
		err          error
		want         error
		least        time.Duration
		most         time.Duration
	}{
		"after five minutes": {allowedAfter: 5 * time.Minute, err: errDenied, least: 5 * time.Minute, most: 5*time.Minute + 10*time.Second},
		"never":              {allowedAfter: time.Hour, err: errDenied, want: errDenied, least: 6 * time.Minute, most: 7 * time.Minute},
		"another error":      {allowedAfter: time.Hour, err: errNotSeen, want: errNotSeen},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				err := propagation.WaitForAuthorization(
					t.Context(),
					func(err error) bool { return errors.Is(err, errDenied) },
					func() error {
						if time.Since(begin) >= tc.allowedAfter {
							return nil
						}

						return tc.err
					},
				)
				if took := time.Since(begin); !errors.Is(err, tc.want) || took < tc.least || took > tc.most {
					t.Errorf("%v after %s, want %v after %s to %s", err, took, tc.want, tc.least, tc.most)
				}
			})
		})
	}
}
