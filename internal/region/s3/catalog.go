// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"encoding/json"
	"time"
)

// catalog has the buckets, without the bodies of their objects. It is the state in the service's
// [state.Store], whose lock guards it, and also the store's backend: it saves one index file for each bucket
// and one file for the versions of each key, so that a write of an object does not write what the bucket has
// of all others.
type catalog struct {
	dir         string             // has one directory for each bucket
	buckets     map[string]*bucket // by name
	unsaved     map[string]bool    // names of the buckets whose index changed after its last successful save
	unsavedKeys map[objectKey]bool // keys whose versions changed after their last successful save
}

// objectKey is a key in a bucket.
type objectKey struct{ bucket, key string }

// bucket is one bucket, as it is saved in its index file; the versions of its objects have files of their own.
type bucket struct {
	Name     string
	Created  time.Time
	Versions map[string][]objectVersion  `json:",omitempty"` // by key, newest first; saved only by older regions
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
	UploadID string            `json:",omitempty"` // of the multipart upload that wrote it
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
	return &catalog{
		dir:         dir,
		buckets:     map[string]*bucket{},
		unsaved:     map[string]bool{},
		unsavedKeys: map[objectKey]bool{},
	}
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
	return s.update(name, f, s.markChanged)
}

// updateKey is [Service.updateBucket] for a function that changes only the versions of a key: it saves these.
func (s *Service) updateKey(name *string, key string, f func(b *bucket) error) error {
	return s.update(name, f, func(b *bucket) {
		s.catalog.unsavedKeys[objectKey{bucket: b.Name, key: key}] = true
		s.store.MarkChanged()
	})
}

func (s *Service) update(name *string, f func(b *bucket) error, markChanged func(b *bucket)) error {
	return s.store.WithLock(func() error {
		b, err := s.catalog.findBucket(*name)
		if err != nil {
			return err
		}

		if err := f(b); err != nil {
			return err
		}

		markChanged(b)

		return nil
	})
}

// markChanged has the store save the bucket's index. The caller holds the lock.
func (s *Service) markChanged(b *bucket) {
	s.catalog.unsaved[b.Name] = true
	s.store.MarkChanged()
}
