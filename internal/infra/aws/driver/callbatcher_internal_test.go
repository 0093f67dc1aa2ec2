// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// TestBatchWithWrongNumberOfResults checks that no caller waits forever and nothing panics when a
// call returns fewer or more results than it had items.
func TestBatchWithWrongNumberOfResults(t *testing.T) {
	for name, results := range map[string]int{"too few": 1, "too many": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key := batchKey{kind: "rule", parent: "sg-1"}
				b := &callBatcher[int]{call: func(context.Context, batchKey, []int) []itemResult {
					return make([]itemResult, results)
				}}
				b.expectItems(map[batchKey]int{key: 2})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				errs := make(chan error, 2)
				for i := range 2 {
					go func() {
						_, err := b.submit(ctx, key, i)
						errs <- err
					}()
				}

				synctest.Wait()
				if len(errs) != 2 {
					t.Fatalf("%d of 2 callers got an answer", len(errs))
				}

				failed := 0
				for range 2 {
					if <-errs != nil {
						failed++
					}
				}
				if want := max(0, 2-results); failed != want {
					t.Errorf("%d callers got an error, want %d", failed, want)
				}
			})
		})
	}
}

func TestUnknownKind(t *testing.T) {
	c := &Cloud{kinds: map[string]untypedDriver{}}
	unknown := plan.Task{Step: plan.Step{Kind: "teapot"}}
	_, createErr := c.Create(t.Context(), unknown)
	_, updateErr := c.Update(t.Context(), unknown)
	for call, err := range map[string]error{
		"Create":    createErr,
		"Update":    updateErr,
		"Delete":    c.Delete(t.Context(), unknown),
		"WaitReady": c.WaitReady(t.Context(), unknown, plan.StepResult{}),
	} {
		if err == nil || err.Error() != `no driver for resource kind "teapot"` {
			t.Errorf("%s: %v", call, err)
		}
	}
}
