// SPDX-License-Identifier: Apache-2.0

// Package s3 is the region's S3: buckets with versions, conditional writes, multipart uploads, bucket
// policies and default encryption. A bucket is a directory with one file for each body and an index.json with
// everything else. The wire layer verifies signatures and decodes XML.
package s3

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config has the settings and dependencies of a [Service]. Dir, Region and Now are required.
type Config struct {
	Dir    string           // directory of the buckets; created if it does not exist
	Region string           // such as us-east-1
	Now    func() time.Time // the region's clock
	// Identities evaluates the caller's own policies. If it is nil, bucket policies are not evaluated either.
	Identities IdentityEvaluator
	// KMS authorizes the use of KMS keys. If it is nil, every caller may use every key.
	KMS KeyService
}

// Service is S3 of one region. Its methods may be called concurrently.
type Service struct {
	cfg   Config
	files state.Dir // of cfg.Dir

	mu          sync.RWMutex       // guards the two maps and what they contain
	buckets     map[string]*bucket // by name
	mountedDirs map[string]string  // directory of the host by bucket name; everyone may read it

	accessMu sync.RWMutex           // guards access; may be locked while mu is held
	access   map[string]accessRules // by bucket
}

// bucket is one bucket. Its index file is saved after each change.
type bucket struct {
	Name     string
	Created  time.Time
	Versions map[string][]objectVersion  // by key, newest first
	Config   map[string]json.RawMessage  // by name of the setting, such as BucketVersioning
	Uploads  map[string]*multipartUpload // uploads in progress, by id
}

// objectVersion is one version of an object, or a delete marker.
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
}

// multipartUpload is a multipart upload in progress.
type multipartUpload struct {
	Key     string
	Started time.Time
	Type    string                  // content type
	Meta    map[string]string       // metadata of the object
	Headers map[string]string       // content headers and encryption, by header name
	Parts   map[int64]objectVersion // by part number
}

// New returns a service with the buckets in cfg.Dir.
func New(cfg Config) (*Service, error) {
	s := &Service{
		files:       state.Dir(cfg.Dir),
		cfg:         cfg,
		buckets:     map[string]*bucket{},
		mountedDirs: map[string]string{},
		access:      map[string]accessRules{},
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of S3: %w", err)
	}

	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("read the directory of S3: %w", err)
	}

	for _, e := range entries {
		b, err := s.loadBucket(e.Name())
		if err != nil {
			return nil, err
		}

		if b.Name == "" {
			continue
		}

		if err := s.refreshAccess(b); err != nil {
			return nil, err
		}

		s.buckets[b.Name] = b
	}

	return s, nil
}

// indexName returns the name under which [state.Dir] saves a bucket: its file is <bucket>/index.json.
func indexName(bucket string) string { return filepath.Join(bucket, "index") }

// loadBucket reads a bucket's index. The bucket has no name if the directory has no index, because the region
// was killed while it created or removed the bucket.
func (s *Service) loadBucket(name string) (*bucket, error) {
	b := &bucket{}
	if err := s.files.Load(indexName(name), b); err != nil {
		return nil, fmt.Errorf("read bucket %s: %w", name, err)
	}

	return b, nil
}

// saveBucket writes a bucket's index atomically. The caller holds mu.
func (s *Service) saveBucket(b *bucket) error {
	if err := s.files.Save(indexName(b.Name), b); err != nil {
		return fmt.Errorf("save bucket %s: %w", b.Name, err)
	}

	return nil
}

func (s *Service) bucketDir(bucket string) string { return filepath.Join(s.cfg.Dir, bucket) }

// findBucket returns a bucket. The caller holds mu.
func (s *Service) findBucket(name *string) (*bucket, error) {
	b, ok := s.buckets[*name]
	if !ok {
		return nil, &wire.Error{
			Code:    "NoSuchBucket",
			Message: "The specified bucket does not exist: " + *name,
			Status:  http.StatusNotFound,
		}
	}

	return b, nil
}

// MountDir serves a directory of the host as a read-only bucket that everyone may read without a signature. The
// region uses it as a public mirror of files.
func (s *Service) MountDir(name, dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mountedDirs[name] = dir
}

// PublicHandler returns a handler if the request is for a file of a mounted bucket, which needs no signature.
func (s *Service) PublicHandler(r *http.Request) (http.Handler, bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, false
	}

	name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	s.mu.RLock()
	dir, ok := s.mountedDirs[name]
	s.mu.RUnlock()
	if !ok || rest == "" {
		return nil, false
	}

	serve := func(w http.ResponseWriter, r *http.Request) { serveMounted(w, r, dir, rest) }

	return http.HandlerFunc(serve), true
}

// serveMounted serves one file below dir. It does not follow links that lead out of dir.
func serveMounted(w http.ResponseWriter, r *http.Request, dir, name string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		http.Error(w, "NoSuchBucket", http.StatusNotFound)
		return
	}

	defer func() { _ = root.Close() }()
	f, err := root.Open(name)
	if err != nil {
		http.Error(w, "NoSuchKey", http.StatusNotFound)
		return
	}

	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		http.Error(w, "NoSuchKey", http.StatusNotFound)
		return
	}

	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", info.ModTime(), f)
}

// randomHex returns 16 random bytes in hex, for file names, version ids and upload ids.
func randomHex() string {
	var b [16]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// stringValue returns *p, or "" if p is nil.
func stringValue(p *string) string {
	if p == nil {
		return ""
	}

	return *p
}
