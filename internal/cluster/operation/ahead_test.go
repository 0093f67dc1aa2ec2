// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"errors"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// TestAhead: an operation that begins while its record is written has it before its first save ends, and one whose
// record cannot be written may not go on.
func TestAhead(t *testing.T) {
	s := newMemory()
	d := operation.Coordinator{Store: s, Cluster: "demo", Now: time.Now, RecordInBackground: true}
	op, err := d.BeginOperation(t.Context(), who("ada"))
	if err != nil {
		t.Fatal(err)
	}
	if err := op.SaveRecord(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, err := d.ListRecords(t.Context(), 0); err != nil || len(all) != 1 || all[0].State != operation.Running {
		t.Fatalf("the history is %v, %v", all, err)
	}
	if err := op.Finish(t.Context(), nil); err != nil {
		t.Fatal(err)
	}

	// Somebody has written the next token's record: it cannot be ours.
	if _, err := s.Create(t.Context(), operation.JournalKey("demo", op.Token()+1), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	op, err = d.BeginOperation(t.Context(), who("bob"))
	if err != nil {
		t.Fatal(err)
	}
	if err := op.SaveRecord(t.Context()); !errors.Is(err, store.ErrConflict) {
		t.Errorf("saved without a record: %v", err)
	}
	if err := op.Finish(t.Context(), nil); !errors.Is(err, store.ErrConflict) {
		t.Errorf("ended without a record: %v", err)
	}
	if l, err := d.ReadLock(t.Context()); err != nil || l.Holder != nil {
		t.Errorf("the lock is held: %v, %v", l.Holder, err)
	}
}
