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
	// Incomplete are the ids of the others.
	Incomplete []string
}

// Find returns the backup with an id, and whether there is one.
func (l Listing) Find(id string) (Backup, bool) {
	i := slices.IndexFunc(l.Backups, func(b Backup) bool { return b.ID == id })
	if i < 0 {
		return Backup{}, false
	}

	return l.Backups[i], true
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

	out.Backups, err = c.read(ctx, complete, objects)
	c.forget(keys)

	return out, err
}

// Newest are the newest backups of a cluster; each is nil if there is none.
type Newest struct {
	// Taken is the newest one, and Tested the newest one that was tested.
	Taken, Tested *Backup
	// Future is the newest one from the future, which counts as neither; see [Backup.FromFuture].
	Future *Backup
}

// ReadNewest reads the newest backups. It reads few objects.
func (c *Catalog) ReadNewest(ctx context.Context, now time.Time, p Policy) (Newest, error) {
	keys, err := c.Archive.Store.List(ctx, Prefix(c.Archive.Cluster))
	if err != nil {
		return Newest{}, err
	}

	objects := groupByID(keys, Prefix(c.Archive.Cluster))
	found, err := c.read(ctx, newestIDs(objects, now, p), objects)
	var out Newest
	for i := range found {
		b := &found[i]

		switch {
		case idFromFuture(b.ID, now, p):
			out.Future = b
			continue

		case out.Taken == nil:
			out.Taken = b
		}

		if b.Verification != nil {
			out.Tested = b
		}
	}

	return out, err
}

// newestIDs returns the ids of the complete backups that [Catalog.ReadNewest] reads, newest first.
func newestIDs(objects map[string]map[string]bool, now time.Time, p Policy) []string {
	var out []string
	hasFuture := false
	hasTaken := false
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(objects))) {
		if !objects[id][metadataObject] {
			continue
		}

		if idFromFuture(id, now, p) {
			if !hasFuture {
				out = append(out, id)
			}

			hasFuture = true

			continue
		}

		isTested := objects[id][verificationObject]
		if !hasTaken || isTested {
			out = append(out, id)
		}

		hasTaken = true
		if isTested {
			break
		}
	}

	return out
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

// read returns the backups with these ids that still exist, in their order.
func (c *Catalog) read(ctx context.Context, ids []string, objects map[string]map[string]bool) ([]Backup, error) {
	found := make([]*Backup, len(ids))
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(parallelReads)
	for i, id := range ids {
		reads.Go(func() error {
			b, err := c.readOne(ctx, id, objects[id][verificationObject])
			if errors.Is(err, store.ErrNotFound) {
				return nil // it was deleted after the list was read
			}

			found[i] = &b

			return err
		})
	}

	if err := reads.Wait(); err != nil {
		return nil, err
	}

	var out []Backup
	for _, b := range found {
		if b != nil {
			out = append(out, *b)
		}
	}

	return out, nil
}

// readOne reads a backup, with its verification if it has one.
func (c *Catalog) readOne(ctx context.Context, id string, verified bool) (Backup, error) {
	var out Backup
	var err error
	if out.IsSigned, err = c.readRecord(ctx, Key(c.Archive.Cluster, id, metadataObject), &out.Metadata); err != nil {
		return out, err
	}

	if out.FormatVersion != FormatVersion || out.ID != id {
		return out, fmt.Errorf("read backup %s in %s: format %d with id %q is not known to this version of slipway",
			id, c.Archive.Store.URL(), out.FormatVersion, out.ID)
	}

	if !verified {
		return out, nil
	}

	out.Verification = &Verification{}
	out.IsTestSigned, err = c.readRecord(ctx, Key(c.Archive.Cluster, id, verificationObject), out.Verification)

	return out, err
}

// readRecord reads a record of a backup, and reports whether it has a valid signature.
func (c *Catalog) readRecord(ctx context.Context, key string, into any) (isSigned bool, err error) {
	body, err := c.readBody(ctx, key)
	if err != nil {
		return false, err
	}

	if c.Archive.Records != nil {
		err := c.Archive.Records.Read(body, key, into)
		if !node.IsUntrusted(err) {
			return err == nil, err
		}
	}

	if err := json.Unmarshal(body, into); err != nil {
		return false, fmt.Errorf("read %s in %s: %w", key, c.Archive.Store.URL(), err)
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

// forget removes copies of objects that do not exist any more.
func (c *Catalog) forget(keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.bodies, func(key string, _ []byte) bool {
		_, found := slices.BinarySearch(keys, key)
		return !found
	})
}
