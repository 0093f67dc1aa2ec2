// SPDX-License-Identifier: Apache-2.0

// Package s3 is the region's S3: buckets with versions, conditional writes, multipart uploads, bucket
// policies and default encryption. A bucket is a directory with one file for each body, one for the versions of
// each key in its directory versions, and an index.json with everything else. The wire layer verifies signatures
// and decodes XML.
//
// A [state.Store] has what these files have of all buckets: each request finds or changes versions under its
// lock, which makes conditional writes atomic, and what changed is saved before the response. Bodies are read,
// written and copied without the lock. A new body is a new file, which a version refers to only when it is
// complete; a body is removed when no saved version refers to it any more.
package s3

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
)

// Config has the settings and dependencies of a [Service]. Dir, Region and Now are required.
type Config struct {
	Dir    string // directory of the buckets; created if it does not exist
	Region string // such as us-east-1
	// Account is the account that owns every bucket, 12 digits; empty for 000000000000.
	Account string
	Now     func() time.Time // the region's clock
	// Identities evaluates the caller's own policies. If it is nil, bucket policies are not evaluated either.
	Identities IdentityEvaluator
	// MissingPrincipal returns a user or role that a bucket policy names and that does not exist; ok is false if there is
	// none. If it is nil, all exist.
	MissingPrincipal func(p authz.Policy) (arn string, ok bool)
	// KMS authorizes the use of KMS keys. If it is nil, every caller may use every key.
	KMS KeyService
}

// Service is S3 of one region. Its methods may be called concurrently.
type Service struct {
	cfg     Config
	store   *state.Store // of the catalog; its lock guards the fields below
	catalog *catalog
	unseen  visibility.Tracker // buckets by name

	mountedDirs map[string]string      // directory of the host by bucket name; everyone may read it
	access      map[string]accessRules // by bucket; derived from the settings
}

// New returns a service with the buckets in cfg.Dir.
func New(cfg Config) (*Service, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of S3: %w", err)
	}

	if cfg.Account == "" {
		cfg.Account = "000000000000"
	}

	c := newCatalog(cfg.Dir)
	s := &Service{
		cfg:         cfg,
		store:       &state.Store{Name: "s3", Backend: c, State: c},
		catalog:     c,
		mountedDirs: map[string]string{},
		access:      map[string]accessRules{},
	}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	for _, b := range c.buckets {
		if err := s.refreshAccess(b); err != nil {
			return nil, err
		}
	}

	return s, nil
}

func (s *Service) bucketDir(bucket string) string { return filepath.Join(s.cfg.Dir, bucket) }

// MountDir serves a directory of the host as a read-only bucket that everyone may read without a signature.
// The region uses it as a public mirror of files.
func (s *Service) MountDir(name, dir string) {
	s.store.Lock()
	defer s.store.Unlock()
	s.mountedDirs[name] = dir
}

// PublicHandler returns a handler if the request is for a file of a mounted bucket, which needs no signature.
func (s *Service) PublicHandler(r *http.Request) (http.Handler, bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, false
	}

	name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	s.store.Lock()
	dir, ok := s.mountedDirs[name]
	s.store.Unlock()
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
		http.Error(w, string(noSuchBucket), http.StatusNotFound)
		return
	}

	defer func() { _ = root.Close() }()
	f, err := root.Open(name)
	if err != nil {
		http.Error(w, string(noSuchKey), http.StatusNotFound)
		return
	}

	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		http.Error(w, string(noSuchKey), http.StatusNotFound)
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
