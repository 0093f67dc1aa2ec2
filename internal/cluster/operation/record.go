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

// State of an operation.
type State string

// The states. A record whose owner was killed says running in the store; [Desk.ListRecords] shows it as interrupted.
const (
	Running     State = "running"
	Succeeded   State = "succeeded"
	Failed      State = "failed"
	Interrupted State = "interrupted"
)

// ChangeCounts counts what an operation set out to do.
type ChangeCounts struct {
	Add     int `json:"add"`
	Change  int `json:"change"`
	Destroy int `json:"destroy"`
	// Publish counts objects that machines read.
	Publish int `json:"publish"`
}

// Record is what the journal says of one operation. It holds no secret.
type Record struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"`
	// Token that the operation held the lock with.
	Token     int64  `json:"token"`
	Operation string `json:"operation"`
	Command   string `json:"command"`
	Owner     string `json:"owner"`
	PID       int    `json:"pid"`
	// Principal is who AWS takes the owner for, as an ARN; empty if AWS was not asked.
	Principal string    `json:"principal,omitempty"`
	Tool      string    `json:"tool,omitempty"`
	StartedAt time.Time `json:"began"`
	EndedAt   time.Time `json:"ended,omitzero"`
	State     State     `json:"state"`
	// Plan is what it set out to do in AWS; nil if it did not come that far, or does nothing there.
	Plan *ChangeCounts `json:"plan,omitempty"`
	// CompletedSteps counts the operations of the plan that have ended well.
	CompletedSteps int `json:"done,omitempty"`
	// Documents of the state store that it wrote.
	Documents []string `json:"documents,omitempty"`
	// Calls to AWS by name, retries included, as in EC2:CreateVpc; of those, Mutating may have changed something.
	Calls         map[string]int `json:"calls,omitempty"`
	MutatingCalls int            `json:"mutatingCalls,omitempty"`
	Error         string         `json:"error,omitempty"`
	// Remark is what came to pass beside it, such as who found it interrupted.
	Remark string `json:"remark,omitempty"`
}

// ParseRecord reads a record as it is stored.
func ParseRecord(body []byte) (Record, error) {
	var r Record
	if err := decodeDocument(body, &r, false); err != nil {
		return Record{}, err
	}

	switch {
	case r.Version > recordVersion:
		return Record{}, diag.WithHint(fmt.Errorf("has version %d", r.Version), "use a newer slipway")
	case r.Version < 1 || r.Token < 1 || r.Token > maxToken:
		return Record{}, fmt.Errorf("has version %d and token %d", r.Version, r.Token)
	case !slices.Contains([]State{Running, Succeeded, Failed, Interrupted}, r.State):
		return Record{}, fmt.Errorf("has state %q", r.State)
	}

	return r, nil
}

// Operation is an operation that goes on: its lease and its record.
type Operation struct {
	*Lease
	coordinator Coordinator

	mu        sync.Mutex
	record    Record
	etag      string
	createErr error // why the record was not written for the first time
}

// BeginOperation takes the lock and writes down that the operation runs. If the one before was killed, that is written down too,
// in such a way that it cannot write its own record any more.
func (d Coordinator) BeginOperation(ctx context.Context, who Initiator) (*Operation, error) {
	l, err := d.Acquire(ctx, who)
	if err != nil {
		return nil, err
	}

	return d.startOperation(ctx, l, who)
}

// BreakLock takes the lock from its holder, writes that down, and releases it.
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
	if d.RecordInBackground {
		op.mu.Lock() // whoever wants to see or change the record waits until it is there
		go func() {
			defer op.mu.Unlock()
			op.createErr = op.createRecord(ctx)
		}()

		return op, nil
	}

	if err := op.createRecord(ctx); err != nil {
		return nil, errors.Join(err, l.Release(context.WithoutCancel(ctx)))
	}

	return op, nil
}

// createRecord writes the record for the first time, after that of the operation before is closed.
func (o *Operation) createRecord(ctx context.Context) error {
	if err := o.coordinator.closePreviousRecord(ctx, o.Lease); err != nil {
		return err
	}

	body, err := encodeDocument(o.record)
	if err != nil {
		return err
	}

	o.etag, err = o.putRecord(ctx, body)

	return err
}

// closePreviousRecord closes the record of the operation that held the lock before and did not release it. Its record gets another
// version, or comes to be, so that neither its update nor its creation by that operation can succeed any more.
func (d Coordinator) closePreviousRecord(ctx context.Context, l *Lease) error {
	was := l.PreviousHolder()
	if was == nil {
		return nil
	}

	key := JournalKey(d.Cluster, l.Token()-1)
	s := l.GuardStore(d.Store)
	remark := fmt.Sprintf("%s by %s took the lock over", l.held.Holder.Operation, l.held.Holder.Owner)
	var err error

	for range maxAcquireAttempts {
		var o store.Object
		o, err = d.Store.Get(ctx, key)
		switch {
		case errors.Is(err, store.ErrNotFound): // it was killed before it wrote one
			err = d.writeInterrupted(Record{
				Version:   recordVersion,
				Cluster:   d.Cluster,
				Token:     l.Token() - 1,
				Operation: was.Operation,
				Command:   was.Command,
				Owner:     was.Owner,
				PID:       was.PID,
				StartedAt: was.Since,
				Remark:    remark,
			}, func(body []byte) (string, error) { return s.Create(ctx, key, body) })

		case err == nil:
			r, parseErr := ParseRecord(o.Body)
			if parseErr != nil || r.State != Running {
				return nil //nolint:nilerr // a record that nobody can read is left to be looked at
			}

			r.Remark = remark
			err = d.writeInterrupted(
				r,
				func(body []byte) (string, error) { return s.Update(ctx, key, body, o.ETag) },
			)
		}

		if !errors.Is(err, store.ErrConflict) { // else it wrote in this very moment, which it cannot do again
			break
		}
	}

	return err
}

func (Coordinator) writeInterrupted(r Record, write func([]byte) (string, error)) error {
	r.State = Interrupted
	body, err := encodeDocument(r)
	if err != nil {
		return err
	}

	if _, err = write(body); err != nil {
		return fmt.Errorf("close the record of the operation before: %w", err)
	}

	return nil
}

// UpdateRecord changes what the record says; it is written by the next [Op.SaveRecord] or [Op.Finish].
func (o *Operation) UpdateRecord(change func(*Record)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.record)
}

// Record returns what the record says now.
func (o *Operation) Record() Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.record
	r.Calls, r.Documents = maps.Clone(r.Calls), slices.Clone(r.Documents)

	return r
}

// SaveRecord writes the record as it is now.
func (o *Operation) SaveRecord(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.saveLocked(ctx)
}

func (o *Operation) saveLocked(ctx context.Context) error {
	if o.createErr != nil {
		return o.createErr
	}

	body, err := encodeDocument(o.record)
	if err != nil {
		return err
	}

	etag, err := o.putRecord(ctx, body)
	if err != nil {
		return fmt.Errorf("write the record of this %s: %w", o.record.Operation, err)
	}

	o.etag = etag

	return nil
}

// putRecord replaces our record, or makes it. It does not look at the lock before: the record is named by our token, and
// whoever takes the lock from us gives it another version, see [Desk.closePreviousRecord]. So only a conflict makes us look.
func (o *Operation) putRecord(ctx context.Context, body []byte) (etag string, err error) {
	key := JournalKey(o.coordinator.Cluster, o.record.Token)
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
		return now.ETag, nil // it was our own write, whose answer got lost
	}

	return "", cmp.Or(o.VerifyHeld(ctx), err)
}

// Finish writes down how the operation ended, and releases the lock. result is its error. Give it a context that outlives
// an interrupt: what is not written down and not released, others have to wait for.
func (o *Operation) Finish(ctx context.Context, result error) error {
	o.UpdateRecord(func(r *Record) {
		r.EndedAt = truncateTime(o.coordinator.Now())
		r.State = Succeeded
		if result != nil {
			r.State, r.Error = Failed, redactSecrets(result.Error())
		}
	})
	if err := o.SaveRecord(ctx); err != nil {
		return errors.Join(err, ignoreLost(o.Release(ctx)))
	}

	return o.Release(ctx)
}

// ignoreLost leaves out what the error beside it says already.
func ignoreLost(err error) error {
	if errors.Is(err, ErrLockLost) {
		return nil
	}

	return err
}

// ListRecords returns the newest records first, limit of them at most; zero means all. A record that cannot be read is in
// the error, beside all others. Records of operations that were killed say interrupted.
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
			err = fmt.Errorf("has token %d", r.Token)
		}

		if err != nil {
			errs = append(errs, fmt.Errorf("the record %s in %s %w", key, d.Store.URL(), err))
			continue
		}

		out = append(out, d.markIfInterrupted(r, lock))
	}

	return out, errors.Join(errs...)
}

// markIfInterrupted shows a record that says running as interrupted if its owner cannot be at work any more.
func (d Coordinator) markIfInterrupted(r Record, lock Lock) Record {
	if r.State != Running {
		return r
	}

	switch {
	case lock.Token != r.Token || lock.Holder == nil:
		r.State = Interrupted
	case d.Now().After(lock.Holder.FreeAt()):
		r.State, r.Remark = Interrupted, "its lease ended at "+formatTime(lock.Holder.Expires)
	}

	return r
}
