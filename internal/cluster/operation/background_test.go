// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// TestRecordInBackground: an operation that starts while its record is created has it before its first save
// ends, and one whose record cannot be created cannot save.
func TestRecordInBackground(t *testing.T) {
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

	// The next token's record exists already, so it cannot be created.
	if _, err := s.Create(t.Context(), operation.JournalKey("demo", op.Token()+1), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	op, err = d.BeginOperation(t.Context(), who("bob"))
	if err != nil {
		t.Fatal(err)
	}
	if err := op.SaveRecord(t.Context()); !errors.Is(err, store.ErrConflict) {
		t.Errorf("SaveRecord without a record: %v", err)
	}
	if err := op.Finish(t.Context(), nil); !errors.Is(err, store.ErrConflict) {
		t.Errorf("Finish without a record: %v", err)
	}
	if l, err := d.ReadLock(t.Context()); err != nil || l.Holder != nil {
		t.Errorf("the lock is held: %v, %v", l.Holder, err)
	}
}

// TestRecordIsUsableDuringAWrite: no lock is held while the record is written, so changing and reading it do
// not wait for the network.
func TestRecordIsUsableDuringAWrite(t *testing.T) {
	for name, background := range map[string]bool{"created in the background": true, "saved": false} {
		t.Run(name, func(t *testing.T) {
			s := newMemory()
			key := operation.JournalKey("demo", 1)
			release := make(chan struct{})
			writing := make(chan struct{}, 1)
			block := func(k string) {
				if k == key {
					writing <- struct{}{}
					<-release
				}
			}
			if background {
				s.before = block
			}
			d := operation.Coordinator{Store: s, Cluster: "demo", Now: time.Now, RecordInBackground: background}
			op := begin(t, d, "ada")
			saved := make(chan error, 1)
			if !background {
				s.before = block
			}
			go func() { saved <- op.SaveRecord(t.Context()) }()
			<-writing
			used := make(chan struct{})
			go func() {
				op.UpdateRecord(func(r *operation.Record) { r.CompletedSteps = 7 })
				_ = op.Record()
				close(used)
			}()
			select {
			case <-used:
			case <-time.After(10 * time.Second):
				t.Fatal("the record cannot be used while it is written")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := op.SaveRecord(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a save that has to wait ends with %v", err)
			}
			close(release)
			go func() {
				for range writing { // of the writes that follow
				}
			}()
			if err := <-saved; err != nil {
				t.Fatal(err)
			}
			end(t, op, nil)
			all, err := d.ListRecords(t.Context(), 0)
			if err != nil || len(all) != 1 || all[0].CompletedSteps != 7 || all[0].State != operation.Succeeded {
				t.Errorf("the history is %v, %v", all, err)
			}
		})
	}
}
