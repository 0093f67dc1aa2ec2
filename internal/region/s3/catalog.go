// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/state"
)

// catalog has the buckets, without the bodies of their objects. It is the state in the service's
// [state.Store], whose lock guards it, and also the store's backend: it saves one index file for each bucket,
// so that a change writes the index of one bucket only.
type catalog struct {
	dir     string             // has one directory for each bucket
	buckets map[string]*bucket // by name
	unsaved map[string]bool    // names of the buckets that changed after their last successful save
}

// bucket is one bucket, as it is saved in its index file.
type bucket struct {
	Name     string
	Created  time.Time
	Versions map[string][]objectVersion  // by key, newest first
	Config   map[string]json.RawMessage  // by name of the setting, such as BucketVersioning
	Uploads  map[string]*multipartUpload // uploads in progress, by id
}

// objectVersion is one version of an object, or a delete marker. Its maps do not change after it was added to
// a bucket, so that a copy can be read without the lock.
type objectVersion struct {
	ID       string // "null" if it was written without versioning
	ETag     string // in quotes
	Size     int64  // bytes
	Modified time.Time
	Type     string            // content type
	Headers  map[string]string // content headers and checksums, by header name
	Metadata map[string]string // the x-amz-meta- headers, without the prefix
	Marker   bool              `json:"marker,omitempty"` // a delete marker
	File     string            // name of the body's file in the bucket's directory; empty for a delete marker
	Parts    []int64           `json:",omitempty"` // sizes of the parts of a multipart upload, in their order
}

// multipartUpload is a multipart upload in progress.
type multipartUpload struct {
	Key     string
	Started time.Time
	Type    string                  // content type
	Meta    map[string]string       // metadata of the object
	Headers map[string]string       // content headers and encryption, by header name
	Parts   map[int64]objectVersion // by part number
	// Checksum is the name of the checksum that the client chose, as [wire.NewChecksum] takes it; empty for S3's
	// default. ChecksumType is FULL_OBJECT or COMPOSITE, and empty without a checksum.
	Checksum     string `json:",omitempty"`
	ChecksumType string `json:",omitempty"`
}

// newCatalog returns a catalog without buckets.
func newCatalog(dir string) *catalog {
	return &catalog{dir: dir, buckets: map[string]*bucket{}, unsaved: map[string]bool{}}
}

// Load implements [state.Backend]: it reads the indexes of all buckets. It ignores a directory without an
// index, which the region leaves if it is killed while it creates or removes a bucket.
func (c *catalog) Load(string, any) error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("read the directory of S3: %w", err)
	}

	for _, e := range entries {
		b := &bucket{}
		if err := state.Dir(c.dir).Load(indexName(e.Name()), b); err != nil {
			return fmt.Errorf("read bucket %s: %w", e.Name(), err)
		}

		if b.Name != "" {
			c.buckets[b.Name] = b
		}
	}

	return nil
}

// Save implements [state.Backend]: it writes the indexes of the buckets that changed, each atomically. A
// bucket whose index could not be written stays unsaved, so that the store's next attempt writes it.
func (c *catalog) Save(string, any) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.unsaved)) {
		if err := state.Dir(c.dir).Save(indexName(name), c.buckets[name]); err != nil {
			errs = append(errs, fmt.Errorf("save bucket %s: %w", name, err))
			continue
		}

		delete(c.unsaved, name)
	}

	return errors.Join(errs...)
}

// indexName returns the name under which [state.Dir] saves a bucket: its file is <bucket>/index.json.
func indexName(bucket string) string { return filepath.Join(bucket, "index") }

// removeBucket removes a bucket and its directory.
func (c *catalog) removeBucket(name string) error {
	if err := os.RemoveAll(filepath.Join(c.dir, name)); err != nil {
		return err
	}

	delete(c.buckets, name)
	delete(c.unsaved, name) // or the retry of a failed save would create the directory again

	return nil
}

func (c *catalog) findBucket(name string) (*bucket, error) {
	b, ok := c.buckets[name]
	if !ok {
		return nil, newError(noSuchBucket, detail("BucketName", name))
	}

	return b, nil
}

// viewBucket runs f, which only reads, with a bucket under the lock. It returns NoSuchBucket, or the error of
// f. A save that is retried may fail without an error here: reads work while the disk is full.
func (s *Service) viewBucket(name *string, f func(b *bucket) error) error {
	var err error
	s.store.View(func() {
		var b *bucket
		if b, err = s.catalog.findBucket(*name); err == nil {
			err = f(b)
		}
	})

	return err
}

// checkBucket returns NoSuchBucket if a bucket does not exist.
func (s *Service) checkBucket(name *string) error {
	return s.viewBucket(name, func(*bucket) error { return nil })
}

// updateBucket runs f with a bucket under the lock, and saves the bucket's index if f returns nil. The saved
// index has the change only if updateBucket returns nil: the caller removes files after that, not in f.
func (s *Service) updateBucket(name *string, f func(b *bucket) error) error {
	return s.store.WithLock(func() error {
		b, err := s.catalog.findBucket(*name)
		if err != nil {
			return err
		}

		if err := f(b); err != nil {
			return err
		}

		s.markChanged(b)

		return nil
	})
}

// markChanged has the store save the bucket's index. The caller holds the lock.
func (s *Service) markChanged(b *bucket) {
	s.catalog.unsaved[b.Name] = true
	s.store.MarkChanged()
}
