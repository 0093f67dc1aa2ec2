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

// The states. A record whose owner was killed says running in the store; [Desk.History] shows it as interrupted.
const (
	Running     State = "running"
	Succeeded   State = "succeeded"
	Failed      State = "failed"
	Interrupted State = "interrupted"
)

// Changes counts what an operation set out to do.
type Changes struct {
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
	Began     time.Time `json:"began"`
	Ended     time.Time `json:"ended,omitzero"`
	State     State     `json:"state"`
	// Plan is what it set out to do in AWS; nil if it did not come that far, or does nothing there.
	Plan *Changes `json:"plan,omitempty"`
	// Done counts the operations of the plan that have ended well.
	Done int `json:"done,omitempty"`
	// Documents of the state store that it wrote.
	Documents []string `json:"documents,omitempty"`
	// Calls to AWS by name, retries included, as in EC2:CreateVpc; of those, Mutating may have changed something.
	Calls    map[string]int `json:"calls,omitempty"`
	Mutating int            `json:"mutatingCalls,omitempty"`
	Error    string         `json:"error,omitempty"`
	// Remark is what came to pass beside it, such as who found it interrupted.
	Remark string `json:"remark,omitempty"`
}

// ParseRecord reads a record as it is stored.
func ParseRecord(body []byte) (Record, error) {
	var r Record
	if err := decode(body, &r, false); err != nil {
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

// Op is an operation that goes on: its lease and its record.
type Op struct {
	*Lease
	desk Desk

	mu     sync.Mutex
	record Record
	etag   string
	unborn error // why the record was not written for the first time
}

// Begin takes the lock and writes down that the operation runs. If the one before was killed, that is written down too,
// in such a way that it cannot write its own record any more.
func (d Desk) Begin(ctx context.Context, who Who) (*Op, error) {
	l, err := d.Acquire(ctx, who)
	if err != nil {
		return nil, err
	}
	return d.begin(ctx, l, who)
}

// Unlock takes the lock from its holder, writes that down, and releases it.
func (d Desk) Unlock(ctx context.Context, who Who, token int64) error {
	l, err := d.Seize(ctx, who, token)
	if err != nil {
		return err
	}
	op, err := d.begin(ctx, l, who)
	if err != nil {
		return err
	}
	return op.End(ctx, nil)
}

func (d Desk) begin(ctx context.Context, l *Lease, who Who) (*Op, error) {
	h := l.lock.Holder
	op := &Op{Lease: l, desk: d, record: Record{
		Version: recordVersion, Cluster: d.Cluster, Token: l.Token(), Operation: h.Operation, Command: h.Command,
		Owner: h.Owner, PID: h.PID, Tool: who.Tool, Began: h.Since, State: Running,
	}}
	if d.Ahead {
		op.mu.Lock() // whoever wants to see or change the record waits until it is there
		go func() {
			defer op.mu.Unlock()
			op.unborn = op.bear(ctx)
		}()
		return op, nil
	}
	if err := op.bear(ctx); err != nil {
		return nil, errors.Join(err, l.Release(context.WithoutCancel(ctx)))
	}
	return op, nil
}

// bear writes the record for the first time, after that of the operation before is closed.
func (o *Op) bear(ctx context.Context) error {
	if err := o.desk.settle(ctx, o.Lease); err != nil {
		return err
	}
	body, err := encode(o.record)
	if err != nil {
		return err
	}
	o.etag, err = o.write(ctx, body)
	return err
}

// settle closes the record of the operation that held the lock before and did not release it. Its record gets another
// version, or comes to be, so that neither its update nor its creation by that operation can succeed any more.
func (d Desk) settle(ctx context.Context, l *Lease) error {
	was := l.Previous()
	if was == nil {
		return nil
	}
	key, s := JournalKey(d.Cluster, l.Token()-1), l.Guard(d.Store)
	remark := fmt.Sprintf("%s by %s took the lock over", l.lock.Holder.Operation, l.lock.Holder.Owner)
	var err error
	for range acquireTries {
		var o store.Object
		o, err = d.Store.Get(ctx, key)
		switch {
		case errors.Is(err, store.ErrNotFound): // it was killed before it wrote one
			err = d.interrupt(Record{
				Version: recordVersion, Cluster: d.Cluster, Token: l.Token() - 1, Operation: was.Operation, Command: was.Command,
				Owner: was.Owner, PID: was.PID, Began: was.Since, Remark: remark,
			}, func(body []byte) (string, error) { return s.Create(ctx, key, body) })
		case err == nil:
			r, parseErr := ParseRecord(o.Body)
			if parseErr != nil || r.State != Running {
				return nil //nolint:nilerr // a record that nobody can read is left to be looked at
			}
			r.Remark = remark
			err = d.interrupt(r, func(body []byte) (string, error) { return s.Update(ctx, key, body, o.ETag) })
		}
		if !errors.Is(err, store.ErrConflict) { // else it wrote in this very moment, which it cannot do again
			break
		}
	}
	return err
}

func (Desk) interrupt(r Record, write func([]byte) (string, error)) error {
	r.State = Interrupted
	body, err := encode(r)
	if err != nil {
		return err
	}
	if _, err = write(body); err != nil {
		return fmt.Errorf("close the record of the operation before: %w", err)
	}
	return nil
}

// Note changes what the record says; it is written by the next [Op.Save] or [Op.End].
func (o *Op) Note(change func(*Record)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.record)
}

// Record returns what the record says now.
func (o *Op) Record() Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.record
	r.Calls, r.Documents = maps.Clone(r.Calls), slices.Clone(r.Documents)
	return r
}

// Save writes the record as it is now.
func (o *Op) Save(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.save(ctx)
}

func (o *Op) save(ctx context.Context) error {
	if o.unborn != nil {
		return o.unborn
	}
	body, err := encode(o.record)
	if err != nil {
		return err
	}
	etag, err := o.write(ctx, body)
	if err != nil {
		return fmt.Errorf("write the record of this %s: %w", o.record.Operation, err)
	}
	o.etag = etag
	return nil
}

// write replaces our record, or makes it. It does not look at the lock before: the record is named by our token, and
// whoever takes the lock from us gives it another version, see [Desk.settle]. So only a conflict makes us look.
func (o *Op) write(ctx context.Context, body []byte) (etag string, err error) {
	key := JournalKey(o.desk.Cluster, o.record.Token)
	if err := o.Ensure(ctx); err != nil {
		return "", err
	}
	if o.etag == "" {
		etag, err = o.desk.Store.Create(ctx, key, body)
	} else {
		etag, err = o.desk.Store.Update(ctx, key, body, o.etag)
	}
	if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
		return etag, err
	}
	if now, readErr := o.desk.Store.Get(ctx, key); readErr == nil && bytes.Equal(now.Body, body) {
		return now.ETag, nil // it was our own write, whose answer got lost
	}
	return "", cmp.Or(o.Check(ctx), err)
}

// End writes down how the operation ended, and releases the lock. result is its error. Give it a context that outlives
// an interrupt: what is not written down and not released, others have to wait for.
func (o *Op) End(ctx context.Context, result error) error {
	o.Note(func(r *Record) {
		r.Ended, r.State = recorded(o.desk.Now()), Succeeded
		if result != nil {
			r.State, r.Error = Failed, redact(result.Error())
		}
	})
	if err := o.Save(ctx); err != nil {
		return errors.Join(err, ignoreLost(o.Release(ctx)))
	}
	return o.Release(ctx)
}

// ignoreLost leaves out what the error beside it says already.
func ignoreLost(err error) error {
	if errors.Is(err, ErrLost) {
		return nil
	}
	return err
}

// History returns the newest records first, limit of them at most; zero means all. A record that cannot be read is in
// the error, beside all others. Records of operations that were killed say interrupted.
func (d Desk) History(ctx context.Context, limit int) ([]Record, error) {
	keys, err := d.Store.List(ctx, JournalKey(d.Cluster, 0))
	if err != nil {
		return nil, fmt.Errorf("list the journal of cluster %s: %w", d.Cluster, err)
	}
	lock, err := d.Lock(ctx)
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
		if err == nil && r.Token != tokenOf(key) {
			err = fmt.Errorf("has token %d", r.Token)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the record %s in %s %w", key, d.Store.URL(), err))
			continue
		}
		out = append(out, d.seen(r, lock))
	}
	return out, errors.Join(errs...)
}

// seen shows a record that says running as interrupted if its owner cannot be at work any more.
func (d Desk) seen(r Record, lock Lock) Record {
	if r.State != Running {
		return r
	}
	switch {
	case lock.Token != r.Token || lock.Holder == nil:
		r.State = Interrupted
	case d.Now().After(lock.Holder.Free()):
		r.State, r.Remark = Interrupted, "its lease ended at "+stamp(lock.Holder.Expires)
	}
	return r
}
