// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/health"
)

// sequence returns an evaluation with one answer after the other: a report or an error.
func sequence(answers ...any) evaluation {
	return func(context.Context) (health.Report, error) {
		next := answers[0]
		answers = answers[1:]
		if err, failed := next.(error); failed {
			return health.Report{}, err
		}

		return health.Report{Valid: next == "healthy"}, nil
	}
}

var errThrottled = errors.New("EC2 DescribeInstances: RequestLimitExceeded")

// TestFailedReadDoesNotEndWait: before, a call to AWS that failed once ended --wait and --watch.
func TestFailedReadDoesNotEndWait(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []any
		valid   bool
		err     error
	}{
		{"a failed read in between", []any{"ill", errThrottled, "healthy"}, true, nil},
		{"the first read fails", []any{errThrottled}, false, errThrottled},
		{"reads fail until the end", []any{"ill", errThrottled, errThrottled, errThrottled}, false, errThrottled},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := &cluster.Env{Now: time.Now}
				req := Request{Name: "demo", Wait: 3 * validateInterval}
				r, err := waitUntilHealthy(t.Context(), env, sequence(c.answers...), req)
				if r.Valid != c.valid || !errors.Is(err, c.err) {
					t.Errorf("got %v, %v, want %v, %v", r.Valid, err, c.valid, c.err)
				}
			})
		})
	}
}

// TestFailedReadDoesNotEndWatch: it is shown, and the next check is made.
func TestFailedReadDoesNotEndWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		ctx, cancel := context.WithCancel(t.Context())
		env := &cluster.Env{Now: time.Now, Hooks: cluster.Hooks{Notify: func(text string) { seen = append(seen, text) }}}
		show := func(r health.Report) error {
			seen = append(seen, strconv.FormatBool(r.Valid))
			if r.Valid {
				cancel()
			}

			return nil
		}

		err := watch(ctx, env, sequence("ill", errThrottled, "healthy"), show)
		want := "false, not checked: EC2 DescribeInstances: RequestLimitExceeded, true"
		if got := strings.Join(seen, ", "); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}

		if err := watch(t.Context(), env, sequence(errThrottled), show); !errors.Is(err, errThrottled) {
			t.Errorf("the first read fails: %v", err)
		}
	})
}
