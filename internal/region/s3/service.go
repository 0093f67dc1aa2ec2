// SPDX-License-Identifier: Apache-2.0

// Package s3 is the region's object store: buckets with versions, conditional writes and multipart uploads, their
// bodies in files of one folder. It checks no signature and decodes no XML; the wire layer does.
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

// Config is what the service needs from outside.
type Config struct {
	Dir    string // for bodies and the index
	Region string
	Now    func() time.Time
	// Identities decides by the caller's own policies, beside the bucket's, which are not evaluated without it.
	Identities IdentityEvaluator
	// Keys is asked for objects that are encrypted with KMS. Without it nobody is.
	Keys KeyService
}

// Service is S3 in one region. Its methods may be called from several goroutines.
type Service struct {
	cfg   Config
	files state.Dir // of cfg.Dir

	mu          sync.RWMutex
	buckets     map[string]*bucket
	mountedDirs map[string]string // bucket name → folder of the host, readable by all

	accessMu sync.RWMutex
	access   map[string]accessRules // by bucket
}

// bucket is one bucket. It is saved as JSON in a file of its own after every change.
type bucket struct {
	Name     string
	Created  time.Time
	Versions map[string][]objectVersion // by key, newest first
	Config   map[string]json.RawMessage // by name of the setting, such as Versioning
	Uploads  map[string]*multipartUpload
}

// objectVersion is one version of an object, or a delete marker.
type objectVersion struct {
	ID       string // null in a bucket that has never had versions
	ETag     string // quoted
	Size     int64
	Modified time.Time
	Type     string            // content type
	Headers  map[string]string // content headers and checksums, by header name
	Metadata map[string]string
	Marker   bool   `json:"marker,omitempty"`
	File     string // of the body, below the bucket's folder
}

// multipartUpload is a multipart upload under way.
type multipartUpload struct {
	Key     string
	Started time.Time
	Type    string
	Meta    map[string]string
	Headers map[string]string // content headers and encryption, by header name
	Parts   map[int64]objectVersion
}

// New opens the folder and loads what it holds.
func New(cfg Config) (*Service, error) {
	s := &Service{
		files:       state.Dir(cfg.Dir),
		cfg:         cfg,
		buckets:     map[string]*bucket{},
		mountedDirs: map[string]string{},
		access:      map[string]accessRules{},
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make s3's folder: %w", err)
	}

	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("read s3's folder: %w", err)
	}

	for _, e := range entries {
		b, err := s.loadBucket(e.Name())
		if err != nil {
			return nil, err
		}

		if b == nil {
			continue
		}

		if err := s.refreshAccess(b); err != nil {
			return nil, err
		}

		s.buckets[b.Name] = b
	}

	return s, nil
}

// indexName is the name under which [state.Dir] keeps a bucket: its file is <bucket>/index.json.
func indexName(bucket string) string { return filepath.Join(bucket, "index") }

// loadBucket reads a bucket's index; nil if the folder has none, because the region was killed while it created or
// removed the bucket.
func (s *Service) loadBucket(name string) (*bucket, error) {
	var b bucket
	if err := s.files.Load(indexName(name), &b); err != nil {
		return nil, fmt.Errorf("read bucket %s: %w", name, err)
	}

	if b.Name == "" {
		return nil, nil //nolint:nilnil // no bucket and no error
	}

	return &b, nil
}

// saveBucket writes a bucket's index, atomically. The caller holds mu.
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

// Mount offers a folder of the host as a bucket that everybody may read and nobody write, as a public mirror of files.
func (s *Service) Mount(name, dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mountedDirs[name] = dir
}

// Public returns the handler of a request that needs no signature: a read of a mounted bucket by path.
func (s *Service) Public(r *http.Request) (http.Handler, bool) {
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

	return http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { serveMounted(w, r, dir, rest) },
	), true
}

// serveMounted serves one file below dir; links that lead out of it are not followed.
func serveMounted(w http.ResponseWriter, r *http.Request, dir, name string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		http.Error(w, "NoSuchBucket", http.StatusNotFound)
		return
	}

	defer root.Close() //nolint:errcheck // read only
	f, err := root.Open(name)
	if err != nil {
		http.Error(w, "NoSuchKey", http.StatusNotFound)
		return
	}

	defer f.Close() //nolint:errcheck // read only
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

// stringValue returns what p points at, or nothing.
func stringValue(p *string) string {
	if p == nil {
		return ""
	}

	return *p
}
