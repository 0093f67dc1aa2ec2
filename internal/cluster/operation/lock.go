// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// lockVersion is the version of the lock's format.
const lockVersion = 1

// Lock is a cluster's lock as it is stored. It is never deleted, so that Token only rises. The zero Lock is
// free and was never held.
type Lock struct {
	// Version of the format.
	Version int `json:"version"`
	// Token is the fencing token of the present or the last holder. It rises by one with each holder.
	Token int64 `json:"token"`
	// Holder is the present holder; nil while the lock is free.
	Holder *Holder `json:"holder,omitempty"`
}

// Holder is the holder of a lock.
type Holder struct {
	// ID is a random string that identifies the holder.
	ID string `json:"id"`
	// Owner is the person and the machine, as in me@host.
	Owner string `json:"owner"`
	PID   int    `json:"pid"`
	// Operation is the name of the command, such as apply.
	Operation string `json:"operation"`
	// Command is the command line, without secrets.
	Command string `json:"command"`
	// Since is when the lock was acquired, by the holder's clock.
	Since time.Time `json:"since"`
	// Expires is when the lease ends unless it is renewed, by the holder's clock.
	Expires time.Time `json:"expires"`
	// LeaseSeconds is the length of the lease.
	LeaseSeconds float64 `json:"leaseSeconds"`
}

// FreeAt returns when others can acquire the lock unless it is renewed: the end of the lease plus
// [MaxClockSkew].
func (h Holder) FreeAt() time.Time {
	return h.Expires.Add(MaxClockSkew(time.Duration(h.LeaseSeconds * float64(time.Second))))
}

// String returns owner, process id and operation.
func (h Holder) String() string {
	return fmt.Sprintf("%s (pid %d, %s)", h.Owner, h.PID, h.Operation)
}

// LockHeldError is the error of an attempt to acquire a lock that another operation holds.
type LockHeldError struct {
	Cluster string
	// Token of the holder.
	Token  int64
	Holder Holder
}

// Error returns who holds the lock, since when and until when.
func (e LockHeldError) Error() string {
	return fmt.Sprintf("cluster %s is locked by %s since %s: the lock expires at %s unless it is renewed",
		e.Cluster, e.Holder, formatTime(e.Holder.Since), formatTime(e.Holder.FreeAt()))
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// ParseLock reads a lock as it is stored. Its errors complete a sentence that begins with the key. It rejects
// unknown versions and fields.
func ParseLock(body []byte) (Lock, error) {
	var l Lock
	if err := decodeDocument(body, &l, true); err != nil {
		return Lock{}, err
	}

	switch {
	case l.Version > lockVersion:
		err := fmt.Errorf("has the unknown format version %d", l.Version)
		return Lock{}, diag.WithHint(err, "upgrade slipway")
	case l.Version < 1 || l.Token < 1 || l.Token >= maxToken:
		return Lock{}, fmt.Errorf("has the invalid version %d or token %d", l.Version, l.Token)
	case l.Holder != nil:
		return l, l.Holder.validate()
	}

	return l, nil
}

func (h Holder) validate() error {
	switch {
	case h.ID == "" || h.Owner == "" || h.Operation == "":
		return errors.New("has a holder without id, owner or operation")
	case h.LeaseSeconds <= 0 || h.LeaseSeconds > (24*time.Hour).Seconds():
		return fmt.Errorf("has an invalid lease of %g seconds", h.LeaseSeconds)
	case h.Expires.Before(h.Since):
		return errors.New("expires before it was acquired")
	}

	return nil
}

// decodeDocument reads one JSON document without trailing data. strict rejects unknown fields: in a lock they
// may be important.
func decodeDocument(body []byte, into any, strict bool) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	if strict {
		dec.DisallowUnknownFields()
	}

	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("is not a valid document: %w", err)
	}

	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("has data after the end of its document")
	}

	return nil
}

// encodeDocument returns a document as it is stored: indented, for people who read it in the store.
func encodeDocument(v any) ([]byte, error) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode a lock or a record: %w", err)
	}

	return append(body, '\n'), nil
}

// ReadLock returns the cluster's lock; the zero Lock if there is none.
func (d Coordinator) ReadLock(ctx context.Context) (Lock, error) {
	l, _, err := d.readLock(ctx)
	return l, err
}

func (d Coordinator) readLock(ctx context.Context) (Lock, string, error) {
	key := LockKey(d.Cluster)
	o, err := d.Store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return Lock{}, "", nil
	}

	if err != nil {
		return Lock{}, "", fmt.Errorf("read the lock of cluster %s: %w", d.Cluster, err)
	}

	l, err := ParseLock(o.Body)
	if err != nil {
		hint := "if no operation is running, delete this object: tokens continue from the journal"
		return Lock{}, "", diag.WithHint(fmt.Errorf("the lock %s in %s %w", key, d.Store.URL(), err), hint)
	}

	return l, o.ETag, nil
}

// maxAcquireAttempts is how often a conditional write is tried again after a conflict with a concurrent one.
const maxAcquireAttempts = 4

// Acquire acquires the lock if it is free or expired; otherwise the error is a [LockHeldError].
func (d Coordinator) Acquire(ctx context.Context, who Initiator) (*Lease, error) {
	return d.acquireIf(ctx, who, func(l Lock) error {
		if l.Holder != nil && d.Now().Before(l.Holder.FreeAt()) {
			return LockHeldError{Cluster: d.Cluster, Token: l.Token, Holder: *l.Holder}
		}

		return nil
	})
}

// ForceAcquire takes the lock from the holder with token, even if it has not expired. It is for 'slipway
// unlock', where a person has seen that holder.
func (d Coordinator) ForceAcquire(ctx context.Context, who Initiator, token int64) (*Lease, error) {
	return d.acquireIf(ctx, who, func(l Lock) error {
		if l.Token != token {
			return fmt.Errorf(
				"the lock of cluster %s was acquired by another operation: it has token %d, not %d",
				d.Cluster,
				l.Token,
				token,
			)
		}

		return nil
	})
}

func (d Coordinator) acquireIf(
	ctx context.Context,
	who Initiator,
	check func(Lock) error,
) (*Lease, error) {
	id := rand.Text()
	var err error
	var previous *Holder // of the lock as it was last read

	for range maxAcquireAttempts {
		var was Lock
		var etag string
		if was, etag, err = d.readWhenReady(ctx); err != nil {
			return nil, err
		}

		if was.Holder != nil && was.Holder.ID == id { // this run's own write, whose response was lost
			l := newLease(d, was, etag, previous)
			l.expires = was.Holder.Expires
			return l, nil
		}

		if err = check(was); err != nil {
			return nil, err
		}

		previous = was.Holder
		var l *Lease
		if l, err = d.claimLock(ctx, id, who, was, etag); err == nil {
			return l, nil
		}

		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			break // if the write took effect, its lease expires
		}
	}

	return nil, fmt.Errorf("lock cluster %s: %w", d.Cluster, err)
}

// readWhenReady reads the lock and runs CheckReady at the same time.
func (d Coordinator) readWhenReady(ctx context.Context) (Lock, string, error) {
	if d.CheckReady == nil {
		return d.readLock(ctx)
	}

	var wg sync.WaitGroup
	var readyErr error
	wg.Go(func() { readyErr = d.CheckReady(ctx) })
	l, etag, err := d.readLock(ctx)
	wg.Wait()

	return l, etag, cmp.Or(readyErr, err)
}

// claimLock makes this run the holder of the lock, if the lock is still the one that was read.
func (d Coordinator) claimLock(
	ctx context.Context,
	id string,
	who Initiator,
	was Lock,
	etag string,
) (*Lease, error) {
	now := d.Now()
	next := Lock{
		Version: lockVersion,
		Token:   was.Token + 1,
		Holder: &Holder{
			ID:           id,
			Owner:        who.Owner,
			PID:          who.PID,
			Operation:    who.Operation,
			Command:      redactSecrets(who.Command),
			Since:        truncateTime(now),
			Expires:      truncateTime(now.Add(d.leaseDuration())),
			LeaseSeconds: d.leaseDuration().Seconds(),
		},
	}
	if etag == "" {
		floor, err := d.lastToken(ctx)
		if err != nil {
			return nil, err
		}

		next.Token = floor + 1
	}

	body, err := encodeDocument(next)
	if err != nil {
		return nil, err
	}

	if etag == "" {
		etag, err = d.Store.Create(ctx, LockKey(d.Cluster), body)
	} else {
		etag, err = d.Store.Update(ctx, LockKey(d.Cluster), body, etag)
	}

	if err != nil {
		return nil, err
	}

	l := newLease(d, next, etag, was.Holder)
	l.expires = now.Add(d.leaseDuration())

	return l, nil
}

// lastToken returns the highest token in the journal. A lock that was deleted by hand continues from it.
func (d Coordinator) lastToken(ctx context.Context) (int64, error) {
	keys, err := d.Store.List(ctx, JournalKey(d.Cluster, 0))
	if err != nil {
		return 0, fmt.Errorf("list the journal of cluster %s: %w", d.Cluster, err)
	}

	var last int64
	for _, key := range keys {
		last = max(last, tokenFromKey(key))
	}

	return last, nil
}

// tokenFromKey returns the token in a record's key; zero if there is none.
func tokenFromKey(key string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(path.Base(key), ".json"), 10, 64)
	if err != nil {
		return 0
	}

	return n
}

// truncateTime returns t in UTC with milliseconds, as it is stored.
func truncateTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
