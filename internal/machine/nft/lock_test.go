// SPDX-License-Identifier: Apache-2.0

package nft_test

import (
	"context"
	"errors"
	"testing"
)

// TestWaitForACopyEnds: who waits for the copy of somebody else gives up with its context.
func TestWaitForACopyEnds(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p := m.program()
	copying, pulled := make(chan struct{}), make(chan struct{})
	p.Pull = func(context.Context, string) error {
		close(copying)
		<-pulled
		return errors.New("no route to the registry")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = p.Run(t.Context(), "list", "tables")
	}()
	<-copying
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Run(ctx, "list", "tables"); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if p.IsPresent(t.Context()) {
		t.Error("the machine has no program yet")
	}
	close(pulled)
	<-done
}
