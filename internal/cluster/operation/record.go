// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// recordVersion is the version of a record's format.
const recordVersion = 1

// State is the state of an operation.
type State string

// The states. The stored record of a killed operation has the state running; [Coordinator.ListRecords]
// reports it as interrupted.
const (
	Running     State = "running"
	Succeeded   State = "succeeded"
	Failed      State = "failed"
	Interrupted State = "interrupted" // stopped by Ctrl-C, killed, or its lock was taken
)

// ChangeCounts counts the steps of an operation's plan.
type ChangeCounts struct {
	Add     int `json:"add"`     // resources to create
	Change  int `json:"change"`  // resources to change in place
	Destroy int `json:"destroy"` // resources to delete
	// Publish counts the objects to publish for machines.
	Publish int `json:"publish"`
}

// Record is the journal's entry for one operation. It contains no secrets.
type Record struct {
	// Version of the format.
	Version int    `json:"version"`
	Cluster string `json:"cluster"`
	// Token is the operation's fencing token.
	Token int64 `json:"token"`
	// Operation is the name of the command, such as apply.
	Operation string `json:"operation"`
	// Command is the command line, without secrets.
	Command string `json:"command"`
	// Owner is the person and the machine, as in me@host.
	Owner string `json:"owner"`
	PID   int    `json:"pid"`
	// Principal is the ARN of the owner's credentials; empty if AWS was not called.
	Principal string `json:"principal,omitempty"`
	// Tool is the version of Slipway.
	Tool      string    `json:"tool,omitempty"`
	StartedAt time.Time `json:"began"`
	EndedAt   time.Time `json:"ended,omitzero"`
	State     State     `json:"state"`
	// Plan counts the steps of its plan; nil if the operation did not get that far, or changes nothing in
	// AWS.
	Plan *ChangeCounts `json:"plan,omitempty"`
	// ClusterID is the id of the cluster in AWS; empty if the operation changes nothing there.
	ClusterID string `json:"clusterID,omitempty"`
	// CompletedSteps counts the operations of the plan that succeeded.
	CompletedSteps int `json:"done,omitempty"`
	// Documents lists the keys of the state store that it wrote.
	Documents []string `json:"documents,omitempty"`
	// Calls counts the AWS calls by name, such as EC2:CreateVpc, including retries.
	Calls map[string]int `json:"calls,omitempty"`
	// MutatingCalls counts those of Calls that may have changed something.
	MutatingCalls int `json:"mutatingCalls,omitempty"`
	// Error is the operation's error, without secrets; empty unless State is Failed, or Interrupted by Ctrl-C.
	Error string `json:"error,omitempty"`
	// Remark is additional information, such as who took the lock of an interrupted operation.
	Remark string `json:"remark,omitempty"`
}

// ParseRecord reads a record as it is stored. Its errors complete a sentence that begins with the key. It
// rejects later versions and ignores unknown fields.
func ParseRecord(body []byte) (Record, error) {
	var r Record
	if err := decodeDocument(body, &r, false); err != nil {
		return Record{}, err
	}

	switch {
	case r.Version > recordVersion:
		err := fmt.Errorf("has the unknown format version %d", r.Version)
		return Record{}, diag.WithHint(err, "upgrade slipway")
	case r.Version < 1 || r.Token < 1 || r.Token > maxToken:
		return Record{}, fmt.Errorf("has the invalid version %d or token %d", r.Version, r.Token)
	case !slices.Contains([]State{Running, Succeeded, Failed, Interrupted}, r.State):
		return Record{}, fmt.Errorf("has the invalid state %q", r.State)
	}

	return r, nil
}

// Operation is a running operation: its lease and its record. It may be used concurrently.
type Operation struct {
	*Lease
	coordinator Coordinator

	created   chan struct{} // closed once the first write of the record has ended
	createErr error         // of the first write; valid once created is closed

	saving turn   // to write the record to the store
	etag   string // of the stored record; guarded by saving

	mu     sync.Mutex // guards record; never held during network I/O
	record Record
}

// BeginOperation acquires the lock and creates the operation's record. If the previous operation was killed,
// its record is marked as interrupted, in such a way that the killed operation cannot write it any more. If
// another operation holds the lock, the error is a [LockHeldError].
func (d Coordinator) BeginOperation(ctx context.Context, who Initiator) (*Operation, error) {
	l, err := d.Acquire(ctx, who)
	if err != nil {
		return nil, err
	}

	return d.startOperation(ctx, l, who)
}

// BreakLock takes the lock from the holder with token, records that, and releases the lock.
func (d Coordinator) BreakLock(ctx context.Context, who Initiator, token int64) error {
	l, err := d.ForceAcquire(ctx, who, token)
	if err != nil {
		return err
	}

	op, err := d.startOperation(ctx, l, who)
	if err != nil {
		return err
	}

	return op.Finish(ctx, nil)
}

func (d Coordinator) startOperation(ctx context.Context, l *Lease, who Initiator) (*Operation, error) {
	h := l.held.Holder
	op := &Operation{
		Lease:       l,
		coordinator: d,
		created:     make(chan struct{}),
		saving:      newTurn(),
		record: Record{
			Version:   recordVersion,
			Cluster:   d.Cluster,
			Token:     l.Token(),
			Operation: h.Operation,
			Command:   h.Command,
			Owner:     h.Owner,
			PID:       h.PID,
			Tool:      who.Tool,
			StartedAt: h.Since,
			State:     Running,
		},
	}

	create := func() {
		defer close(op.created)
		op.createErr = op.createRecord(ctx)
	}

	if d.RecordInBackground {
		go create()
		return op, nil
	}

	create()
	if op.createErr != nil {
		return nil, errors.Join(op.createErr, l.Release(context.WithoutCancel(ctx)))
	}

	return op, nil
}

// createRecord closes the record of the previous operation and writes this one for the first time.
func (o *Operation) createRecord(ctx context.Context) error {
	if err := o.coordinator.closePreviousRecord(ctx, o.Lease); err != nil {
		return err
	}

	return o.writeRecord(ctx)
}

// closePreviousRecord marks the record of the previous holder, which did not release the lock, as
// interrupted. The record gets another version or is created, so the previous operation can neither update
// nor create it any more.
func (d Coordinator) closePreviousRecord(ctx context.Context, l *Lease) error {
	previous := l.PreviousHolder()
	if previous == nil {
		return nil
	}

	key := JournalKey(d.Cluster, l.Token()-1)
	guarded := l.GuardStore(d.Store)
	remark := fmt.Sprintf("%s by %s took the lock over", l.held.Holder.Operation, l.held.Holder.Owner)
	var err error

	for range maxAcquireAttempts {
		var o store.Object
		o, err = d.Store.Get(ctx, key)
		switch {
		case errors.Is(err, store.ErrNotFound): // killed before it created its record
			r := d.recordOfHolder(*previous, l.Token()-1)
			r.Remark = remark
			err = writeInterrupted(
				r,
				func(body []byte) (string, error) { return guarded.Create(ctx, key, body) },
			)

		case err == nil:
			r, running := runningRecord(o.Body)
			if !running {
				return nil
			}

			r.Remark = remark
			err = writeInterrupted(
				r,
				func(body []byte) (string, error) { return guarded.Update(ctx, key, body, o.ETag) },
			)
		}

		// on a conflict it has just written its record, and cannot again
		if !errors.Is(err, store.ErrConflict) {
			break
		}
	}

	return err
}

// recordOfHolder returns the record of a holder that was killed before it created one.
func (d Coordinator) recordOfHolder(h Holder, token int64) Record {
	return Record{
		Version:   recordVersion,
		Cluster:   d.Cluster,
		Token:     token,
		Operation: h.Operation,
		Command:   h.Command,
		Owner:     h.Owner,
		PID:       h.PID,
		StartedAt: h.Since,
	}
}

// runningRecord returns the record of a running operation; false if it has ended, or if the record is not
// readable and must be kept for inspection.
func runningRecord(body []byte) (Record, bool) {
	r, err := ParseRecord(body)
	return r, err == nil && r.State == Running
}

func writeInterrupted(r Record, write func([]byte) (string, error)) error {
	r.State = Interrupted
	body, err := encodeDocument(r)
	if err != nil {
		return err
	}

	if _, err = write(body); err != nil {
		return fmt.Errorf("close the record of the previous operation: %w", err)
	}

	return nil
}

// UpdateRecord changes the record in memory; the next [Operation.SaveRecord] or [Operation.Finish] writes it.
// It does not wait for a write that is in progress.
func (o *Operation) UpdateRecord(change func(*Record)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.record)
}

// Record returns a copy of the record as it is in memory. It does not wait for a write that is in progress.
func (o *Operation) Record() Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.record
	r.Calls = maps.Clone(r.Calls)
	r.Documents = slices.Clone(r.Documents)

	return r
}

// SaveRecord writes the record to the store. The error wraps [ErrLockLost] if another operation has taken the
// lock.
func (o *Operation) SaveRecord(ctx context.Context) error {
	select {
	case <-o.created:
	case <-ctx.Done():
		return fmt.Errorf("create the record of this operation: %w", context.Cause(ctx))
	}

	if o.createErr != nil {
		return o.createErr
	}

	if err := o.writeRecord(ctx); err != nil {
		return fmt.Errorf("write the record of this operation: %w", err)
	}

	return nil
}

// writeRecord writes the present record and remembers its version.
func (o *Operation) writeRecord(ctx context.Context) error {
	if err := o.saving.take(ctx); err != nil {
		return err
	}

	defer o.saving.pass()
	body, err := encodeDocument(o.Record())
	if err != nil {
		return err
	}

	etag, err := o.putRecord(ctx, body)
	if err == nil {
		o.etag = etag
	}

	return err
}

// putRecord creates or replaces the record and returns its version. It does not verify the lock first: the
// key contains this operation's token, and whoever takes the lock changes the record's version, see
// [Coordinator.closePreviousRecord]. So the lock needs to be verified only after a conflict.
func (o *Operation) putRecord(ctx context.Context, body []byte) (etag string, err error) {
	key := JournalKey(o.coordinator.Cluster, o.Token())
	if err := o.EnsureHeld(ctx); err != nil {
		return "", err
	}

	if o.etag == "" {
		etag, err = o.coordinator.Store.Create(ctx, key, body)
	} else {
		etag, err = o.coordinator.Store.Update(ctx, key, body, o.etag)
	}

	if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
		return etag, err
	}

	if now, readErr := o.coordinator.Store.Get(ctx, key); readErr == nil && bytes.Equal(now.Body, body) {
		return now.ETag, nil // this run's own write, whose response was lost
	}

	return "", cmp.Or(o.VerifyHeld(ctx), err)
}

// Finish records how the operation ended and releases the lock. result is the operation's error; nil: it
// succeeded. ctx should outlive an interrupt: a lock that is not released blocks others until it expires.
func (o *Operation) Finish(ctx context.Context, result error) error {
	o.UpdateRecord(func(r *Record) {
		r.EndedAt = truncateTime(o.coordinator.Now())
		r.State = Succeeded
		if result != nil {
			r.State = Failed
			r.Error = redactSecrets(result.Error())
		}

		if errors.Is(result, context.Canceled) {
			r.State = Interrupted
		}
	})
	if err := o.SaveRecord(ctx); err != nil {
		return errors.Join(err, ignoreLost(o.Release(ctx)))
	}

	return o.Release(ctx)
}

// ignoreLost returns nil for an error that wraps [ErrLockLost], which the error of the record already
// reports.
func ignoreLost(err error) error {
	if errors.Is(err, ErrLockLost) {
		return nil
	}

	return err
}

// ListRecords returns the journal, newest record first, with at most limit records; 0: all. Records that
// cannot be read are reported in the error; the others are still returned. Records of killed operations have
// the state Interrupted.
func (d Coordinator) ListRecords(ctx context.Context, limit int) ([]Record, error) {
	keys, err := d.Store.List(ctx, JournalKey(d.Cluster, 0))
	if err != nil {
		return nil, fmt.Errorf("list the journal of cluster %s: %w", d.Cluster, err)
	}

	lock, err := d.ReadLock(ctx)
	errs := []error{err}
	slices.Reverse(keys)
	if limit > 0 && len(keys) > limit {
		keys = keys[:limit]
	}

	var out []Record

	for _, key := range keys {
		o, err := d.Store.Get(ctx, key)
		if err != nil {
			errs = append(errs, err)
			continue
		}

		r, err := ParseRecord(o.Body)
		if err == nil && r.Token != tokenFromKey(key) {
			err = fmt.Errorf("has the token %d of another record", r.Token)
		}

		if err != nil {
			errs = append(errs, fmt.Errorf("the record %s in %s %w", key, d.Store.URL(), err))
			continue
		}

		out = append(out, d.markIfInterrupted(r, lock))
	}

	return out, errors.Join(errs...)
}

// markIfInterrupted returns r with the state Interrupted if its state is Running and its operation does not
// hold the lock any more.
func (d Coordinator) markIfInterrupted(r Record, lock Lock) Record {
	if r.State != Running {
		return r
	}

	switch {
	case lock.Token != r.Token || lock.Holder == nil:
		r.State = Interrupted
	case d.Now().After(lock.Holder.FreeAt()):
		r.State = Interrupted
		r.Remark = "its lease expired at " + formatTime(lock.Holder.Expires)
	}

	return r
}
