// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"crypto/rand"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// TestCancelUpdateStackCancelsBeforeItAnswers: the running operation must be cancelled when CancelUpdateStack returns, not
// some time later in a goroutine, and not under the store's lock, which the runner takes while it holds its own.
func TestCancelUpdateStackCancelsBeforeItAnswers(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Region: "us-east-1", Account: "123456789012", Now: time.Now, Rand: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}

	const id = "arn:aws:cloudformation:us-east-1:123456789012:stack/net/1"
	s.state.Stacks[id] = &stack{
		ID:     id,
		Name:   "net",
		Status: "UPDATE" + suffixInProgress,
		Op:     &stackOperation{Kind: opUpdate, Phase: "forward"},
	}

	cancelled := 0
	s.cancelFuncs[id] = func(error) {
		cancelled++
		s.store.View(func() {}) // deadlocks if the handler holds the lock
	}

	_, err = wire.CallOperation(wire.WithCaller(t.Context(), wire.SystemCaller()), s.Wire(), "CancelUpdateStack", func(in any) error {
		in.(*sdk.CancelUpdateStackInput).StackName = new("net")
		return nil
	})
	if err != nil || cancelled != 1 {
		t.Errorf("the operation was cancelled %d times: %v", cancelled, err)
	}

	if s.state.Stacks[id].Op.Cancelled == "" {
		t.Error("the cancellation is not saved: a restarted region would continue the update")
	}
}
