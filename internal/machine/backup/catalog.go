// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// parallelReads is how many objects are read at the same time.
const parallelReads = 8

// Commit writes the metadata of a backup whose parts were uploaded. From then on the backup exists.
func (a Archive) Commit(ctx context.Context, m Metadata) error {
	key := Key(a.Cluster, m.ID, metadataObject)
	body, err := a.encode(key, m)
	if err != nil {
		return err
	}

	_, err = a.Store.Create(ctx, key, body)

	return err
}

// WriteVerification writes the result of a test. If another machine has written one, that one stays.
func (a Archive) WriteVerification(ctx context.Context, v Verification) error {
	key := Key(a.Cluster, v.ID, verificationObject)
	body, err := a.encode(key, v)
	if err != nil {
		return err
	}

	_, err = a.Store.Create(ctx, key, body)
	if errors.Is(err, store.ErrConflict) {
		return nil
	}

	return err
}

// encode encodes a record of a backup, and signs it if the archive has a signer.
func (a Archive) encode(key string, record any) ([]byte, error) {
	if a.Records != nil {
		return a.Records.Sign(key, record)
	}

	body, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", key, err)
	}

	return body, nil
}

// Delete deletes a backup. Its metadata is deleted first: a deletion that was killed leaves an incomplete backup, whose
// deletion is repeated.
func (a Archive) Delete(ctx context.Context, id string) error {
	if _, valid := timeOf(id); !valid {
		return fmt.Errorf("delete backup %q: it is not an id of a backup", id)
	}

	first := Key(a.Cluster, id, metadataObject)
	if err := a.Store.Delete(ctx, first); err != nil {
		return err
	}

	keys, err := a.Store.List(ctx, Key(a.Cluster, id, ""))
	if err != nil {
		return err
	}

	for _, key := range keys {
		if err := a.Store.Delete(ctx, key); err != nil {
			return err
		}
	}

	return nil
}

// Discard deletes the parts of a backup that could not be completed. If its metadata exists all the same, because only the answer to
// [Archive.Commit] was lost, it stays: another machine may use it already.
func (a Archive) Discard(ctx context.Context, id string) error {
	_, err := a.Store.Get(ctx, Key(a.Cluster, id, metadataObject))
	if errors.Is(err, store.ErrNotFound) {
		return a.Delete(ctx, id)
	}

	return err
}

// Catalog lists the backups of a cluster. It remembers metadata and verifications, which never change. Its methods may
// be called concurrently.
type Catalog struct {
	// Archive has the backups.
	Archive Archive

	mu     sync.Mutex
	bodies map[string][]byte // by key
}

// Listing is the content of an archive.
type Listing struct {
	// Backups are the complete ones, oldest first.
	Backups []Backup
	// Incomplete are the ids of those without metadata.
	Incomplete []string
	// Unreadable are those whose metadata cannot be read. They are not used, and never deleted: a later version of slipway may have
	// written them.
	Unreadable []Unreadable
}

// Unreadable is a backup whose metadata cannot be read.
type Unreadable struct {
	// ID of the backup.
	ID string `json:"id"`
	// Reason says what is wrong with its object.
	Reason string `json:"reason"`
}

// Find returns the backup with an id, and whether there is one.
func (l Listing) Find(id string) (Backup, bool) {
	i := slices.IndexFunc(l.Backups, func(b Backup) bool { return b.ID == id })
	if i < 0 {
		return Backup{}, false
	}

	return l.Backups[i], true
}

// FindUnreadable returns the backup with an id that cannot be read, and whether there is one.
func (l Listing) FindUnreadable(id string) (Unreadable, bool) {
	i := slices.IndexFunc(l.Unreadable, func(u Unreadable) bool { return u.ID == id })
	if i < 0 {
		return Unreadable{}, false
	}

	return l.Unreadable[i], true
}

// DescribeMissing says why Find finds no backup with an id: it cannot be read, or it does not exist.
func (l Listing) DescribeMissing(id string) string {
	if u, ok := l.FindUnreadable(id); ok {
		return u.Reason
	}

	return "it does not exist any more"
}

// List reads all backups.
func (c *Catalog) List(ctx context.Context) (Listing, error) {
	keys, err := c.Archive.Store.List(ctx, Prefix(c.Archive.Cluster))
	if err != nil {
		return Listing{}, err
	}

	objects := groupByID(keys, Prefix(c.Archive.Cluster))
	var out Listing
	var complete []string
	for _, id := range slices.Sorted(maps.Keys(objects)) {
		if objects[id][metadataObject] {
			complete = append(complete, id)
		} else {
			out.Incomplete = append(out.Incomplete, id)
		}
	}

	out.Backups, out.Unreadable, err = c.read(ctx, complete, objects)
	c.forget(keys)

	return out, err
}

// idFromFuture is [Backup.FromFuture] of a backup of which only the id is known.
func idFromFuture(id string, now time.Time, p Policy) bool {
	at, _ := timeOf(id)

	return isFuture(at, now, p)
}

// groupByID returns the names of the objects of each backup.
func groupByID(keys []string, prefix string) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for _, key := range keys {
		id, object, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
		if _, valid := timeOf(id); !valid {
			continue
		}

		if out[id] == nil {
			out[id] = map[string]bool{}
		}

		out[id][object] = true
	}

	return out
}

// read returns the backups with these ids that still exist, in their order, and those that cannot be read.
func (c *Catalog) read(ctx context.Context, ids []string, objects map[string]map[string]bool) ([]Backup, []Unreadable, error) {
	found := make([]*Backup, len(ids))
	broken := make([]error, len(ids))
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(parallelReads)
	for i, id := range ids {
		reads.Go(func() error {
			b, err := c.readOne(ctx, id, objects[id][verificationObject])

			switch {
			case errors.Is(err, store.ErrNotFound): // it was deleted after the list was read
				return nil

			case errors.Is(err, errUnreadable):
				broken[i] = err
				return nil
			}

			found[i] = &b

			return err
		})
	}

	if err := reads.Wait(); err != nil {
		return nil, nil, err
	}

	var out []Backup
	var unreadable []Unreadable
	for i, id := range ids {
		if found[i] != nil {
			out = append(out, *found[i])
		}

		if broken[i] != nil {
			unreadable = append(unreadable, Unreadable{ID: id, Reason: broken[i].Error()})
		}
	}

	return out, unreadable, nil
}

// errUnreadable is wrapped by errors that say that an object was read from the store, and is not what it should be. To read it again is of
// no use.
var errUnreadable = errors.New("the object is not valid")

// readOne reads a backup, with its verification if it has one.
func (c *Catalog) readOne(ctx context.Context, id string, verified bool) (Backup, error) {
	var out Backup
	var err error
	if out.IsSigned, err = c.readRecord(ctx, Key(c.Archive.Cluster, id, metadataObject), &out.Metadata); err != nil {
		return out, err
	}

	if out.FormatVersion != FormatVersion || out.ID != id {
		c.forgetBody(Key(c.Archive.Cluster, id, metadataObject))

		return out, fmt.Errorf("read backup %s in %s: format %d with id %q is not known to this version of slipway: %w",
			id, c.Archive.Store.URL(), out.FormatVersion, out.ID, errUnreadable)
	}

	if !verified {
		return out, nil
	}

	out.Verification = &Verification{}
	out.IsTestSigned, err = c.readRecord(ctx, Key(c.Archive.Cluster, id, verificationObject), out.Verification)
	if errors.Is(err, errUnreadable) { // no other result can be stored: it is not tested again
		out.Verification = &Verification{ID: id, VerifiedAt: out.TakenAt, Inconclusive: true, Error: err.Error()}
		err = nil
	}

	return out, err
}

// readRecord reads a record and returns whether a machine of the cluster signed it. The error wraps errUnreadable if the object exists
// and is not a record.
func (c *Catalog) readRecord(ctx context.Context, key string, into any) (signed bool, err error) {
	body, err := c.readBody(ctx, key)
	if err != nil {
		return false, err
	}

	if c.Archive.Records != nil {
		err := c.Archive.Records.Read(body, key, into)
		if err == nil {
			return true, nil
		}

		if !node.IsUntrusted(err) {
			c.forgetBody(key)
			return false, fmt.Errorf("%w: %w", err, errUnreadable)
		}
	}

	if err := json.Unmarshal(body, into); err != nil {
		c.forgetBody(key)
		return false, fmt.Errorf("read %s in %s: %w: %w", key, c.Archive.Store.URL(), err, errUnreadable)
	}

	return false, nil
}

// readBody reads an object that never changes.
func (c *Catalog) readBody(ctx context.Context, key string) ([]byte, error) {
	c.mu.Lock()
	body, known := c.bodies[key]
	c.mu.Unlock()
	if known {
		return body, nil
	}

	o, err := c.Archive.Store.Get(ctx, key)
	if err != nil {
		return nil, err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bodies == nil {
		c.bodies = map[string][]byte{}
	}

	c.bodies[key] = o.Body

	return o.Body, nil
}

// forgetBody removes the copy of an object that is not a record: somebody may replace it by a former version of it.
func (c *Catalog) forgetBody(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.bodies, key)
}

// forget removes copies of objects that do not exist any more.
func (c *Catalog) forget(keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.bodies, func(key string, _ []byte) bool {
		_, found := slices.BinarySearch(keys, key)
		return !found
	})
}
