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

// Lock is what the store says of a cluster's lock. It is never deleted, so that Token only rises. The zero Lock is free
// and has never been held.
type Lock struct {
	Version int `json:"version"`
	// Token of who holds it, or held it last. It rises by one each time that the lock is taken.
	Token int64 `json:"token"`
	// Holder has it; nil while it is free.
	Holder *Holder `json:"holder,omitempty"`
}

// Holder is who has a lock.
type Holder struct {
	// ID tells two holders apart, whatever else they have in common.
	ID string `json:"id"`
	// Owner is the person and the machine.
	Owner     string `json:"owner"`
	PID       int    `json:"pid"`
	Operation string `json:"operation"`
	// Command line, without secrets.
	Command string    `json:"command"`
	Since   time.Time `json:"since"`
	// Expires is when the lease ends unless it is renewed, by the holder's clock.
	Expires time.Time `json:"expires"`
	// LeaseSeconds is how long a renewal is good for.
	LeaseSeconds float64 `json:"leaseSeconds"`
}

// FreeAt returns when others may take the lock: the lease's end and the skew that clocks may have.
func (h Holder) FreeAt() time.Time {
	return h.Expires.Add(MaxClockSkew(time.Duration(h.LeaseSeconds * float64(time.Second))))
}

// String names the holder as a person wants to read it.
func (h Holder) String() string {
	return fmt.Sprintf("%s (pid %d, %s)", h.Owner, h.PID, h.Operation)
}

// LockHeldError says that somebody else has the lock.
type LockHeldError struct {
	Cluster string
	Token   int64
	Holder  Holder
}

// Error says who has it, since when and until when.
func (e LockHeldError) Error() string {
	return fmt.Sprintf("cluster %s is locked by %s since %s: it can be taken from %s on unless it is renewed",
		e.Cluster, e.Holder, formatTime(e.Holder.Since), formatTime(e.Holder.FreeAt()))
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// ParseLock reads a lock as it is stored.
func ParseLock(body []byte) (Lock, error) {
	var l Lock
	if err := decodeDocument(body, &l, true); err != nil {
		return Lock{}, err
	}

	switch {
	case l.Version > lockVersion:
		return Lock{}, diag.WithHint(fmt.Errorf("has version %d", l.Version), "use a newer slipway")
	case l.Version < 1 || l.Token < 1 || l.Token >= maxToken:
		return Lock{}, fmt.Errorf("has version %d and token %d", l.Version, l.Token)
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
		return fmt.Errorf("has a lease of %g seconds", h.LeaseSeconds)
	case h.Expires.Before(h.Since):
		return errors.New("ends before it begins")
	}

	return nil
}

// decodeDocument reads one JSON document and nothing else. In a lock a field that we do not know may matter, so it is refused.
func decodeDocument(body []byte, into any, strict bool) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	if strict {
		dec.DisallowUnknownFields()
	}

	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("is no valid document: %w", err)
	}

	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("has something after its document")
	}

	return nil
}

// encodeDocument writes a document as it is stored: indented, for people who look into the store.
func encodeDocument(v any) ([]byte, error) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode a document of the journal: %w", err)
	}

	return append(body, '\n'), nil
}

// ReadLock reads the cluster's lock.
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
		hint := "if nobody works on the cluster, delete this object: tokens go on where the journal stops"
		return Lock{}, "", diag.WithHint(fmt.Errorf("the lock %s in %s %w", key, d.Store.URL(), err), hint)
	}

	return l, o.ETag, nil
}

// maxAcquireAttempts is how often the lock is looked at again when another one took it in the same moment.
const maxAcquireAttempts = 4

// Acquire takes the lock if it is free or its holder's lease has ended; else the error is a [LockHeldError].
func (d Coordinator) Acquire(ctx context.Context, who Initiator) (*Lease, error) {
	return d.acquireIf(ctx, who, func(l Lock) error {
		if l.Holder != nil && d.Now().Before(l.Holder.FreeAt()) {
			return LockHeldError{Cluster: d.Cluster, Token: l.Token, Holder: *l.Holder}
		}

		return nil
	})
}

// ForceAcquire takes the lock from whoever holds it with token. It is for 'slipway unlock': a person has looked at who that is.
func (d Coordinator) ForceAcquire(ctx context.Context, who Initiator, token int64) (*Lease, error) {
	return d.acquireIf(ctx, who, func(l Lock) error {
		if l.Token != token {
			return fmt.Errorf(
				"the lock of cluster %s has changed hands meanwhile: it has token %d, not %d",
				d.Cluster,
				l.Token,
				token,
			)
		}

		return nil
	})
}

func (d Coordinator) acquireIf(ctx context.Context, who Initiator, may func(Lock) error) (*Lease, error) {
	id := rand.Text()
	var err error
	var previous *Holder // of the lock as we tried to take it

	for range maxAcquireAttempts {
		var was Lock
		var etag string
		if was, etag, err = d.readWhenReady(ctx); err != nil {
			return nil, err
		}

		if was.Holder != nil && was.Holder.ID == id { // our own write, whose answer got lost
			return &Lease{
				coordinator:    d,
				held:           was,
				etag:           etag,
				expires:        was.Holder.Expires,
				previousHolder: previous,
			}, nil
		}

		if err = may(was); err != nil {
			return nil, err
		}

		previous = was.Holder
		var l *Lease
		if l, err = d.claimLock(ctx, id, who, was, etag); err == nil {
			return l, nil
		}

		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			break // what a lost answer leaves behind is taken over when its lease ends
		}
	}

	return nil, fmt.Errorf("lock cluster %s: %w", d.Cluster, err)
}

// readWhenReady reads the lock, and asks whether all is ready to take it.
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

// claimLock writes us into the lock, if it still is what was read.
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

	return &Lease{
		coordinator:    d,
		held:           next,
		etag:           etag,
		expires:        now.Add(d.leaseDuration()),
		previousHolder: was.Holder,
	}, nil
}

// lastToken is the highest token that the journal has seen: a lock that was deleted by hand must not give it again.
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

// tokenFromKey returns the token that a journal's key is named by; zero if it is none.
func tokenFromKey(key string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(path.Base(key), ".json"), 10, 64)
	if err != nil {
		return 0
	}

	return n
}

// truncateTime is t as documents have it.
func truncateTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
