// SPDX-License-Identifier: Apache-2.0

// Package imds implements the EC2 instance metadata service: session tokens (IMDSv2), directories,
// and values over HTTP. The values, and the instance that a request comes from, are provided by the
// caller.
package imds

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MetadataSource provides the metadata of instances. It is called concurrently.
//
// Paths are relative to a version and have no slash at either end: "meta-data/instance-id",
// "user-data", "meta-data/iam/security-credentials/role", "dynamic/instance-identity/document".
type MetadataSource interface {
	// FindInstance returns the instance with a private address in a VPC; ok is false if there is
	// none.
	FindInstance(vpc string, addr netip.Addr) (id string, ok bool)
	// GetValue returns the value at a path. A missing value has found == false and a nil error; an
	// error results in status 500.
	GetValue(instanceID, path string) (value []byte, found bool, err error)
	// TokenOptions returns whether requests of an instance need a session token, and whether they
	// are answered at all.
	TokenOptions(instanceID string) (tokensRequired, enabled bool)
}

// PathLister is optionally implemented by a MetadataSource to list directories.
type PathLister interface {
	// ListPaths returns all paths that have a value, in any order.
	ListPaths(instanceID string) []string
}

// Options configures the service. Source, RequestOrigin, and Clock are required.
type Options struct {
	// Source provides the metadata.
	Source MetadataSource
	// RequestOrigin returns the VPC and address that a request came from, by the request's context.
	RequestOrigin func(ctx context.Context) (vpc string, addr netip.Addr, ok bool)
	// Clock returns the current time.
	Clock func() time.Time
	// TokenKey signs session tokens. Tokens survive a restart with the same key. Empty means a
	// random key.
	TokenKey []byte
	// Log receives errors of Source; nil means no log.
	Log *slog.Logger
}

const (
	tokenPath   = "api/token"
	tokenHeader = "X-Aws-Ec2-Metadata-Token" //nolint:gosec // the name of an HTTP header
	ttlHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	maxTokenTTL = 21600 // seconds; AWS's limit of six hours
)

// apiVersions returns the versions that clients may request; all have the same content. cloud-init
// tries several and falls back to the first.
func apiVersions() []string {
	return []string{
		"1.0",
		"2009-04-04",
		"2016-09-02",
		"2018-09-24",
		"2020-10-27",
		"2021-03-23",
		"2021-07-15",
		"2022-09-24",
		"latest",
	}
}

// New returns the handler of the service.
func New(opts Options) (http.Handler, error) {
	if opts.Source == nil || opts.RequestOrigin == nil || opts.Clock == nil {
		return nil, errors.New("metadata service: source, request origin, and clock are required")
	}

	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}

	if len(opts.TokenKey) == 0 {
		opts.TokenKey = []byte(rand.Text() + rand.Text())
	}

	return &service{opts: opts, tokens: tokenIssuer{key: opts.TokenKey}}, nil
}

type service struct {
	opts   Options
	tokens tokenIssuer
}

// ServeHTTP serves one request.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "EC2ws")
	vpc, addr, ok := s.opts.RequestOrigin(r.Context())
	if !ok {
		writeError(w, http.StatusForbidden)
		return
	}

	id, ok := s.opts.Source.FindInstance(vpc, addr)
	if !ok {
		writeError(w, http.StatusNotFound)
		return
	}

	required, enabled := s.opts.Source.TokenOptions(id)
	if !enabled {
		writeError(w, http.StatusForbidden)
		return
	}

	if r.Method == http.MethodPut {
		s.issueToken(w, r, id)
		return
	}

	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		writeError(w, http.StatusMethodNotAllowed)
		return
	}

	token := r.Header.Get(tokenHeader)
	if token == "" && required || token != "" && !s.tokens.isValid(token, id, s.opts.Clock()) {
		writeError(w, http.StatusUnauthorized)
		return
	}

	s.serveValue(w, r, id)
}

// issueToken issues a session token. It rejects requests that came through a proxy, because an open
// proxy on an instance must not expose the instance's credentials.
func (s *service) issueToken(w http.ResponseWriter, r *http.Request, id string) {
	version, path := splitPath(r.URL.Path)
	switch {
	case version != "latest" || path != tokenPath:
		writeError(w, http.StatusMethodNotAllowed)
		return
	case len(r.Header.Values("X-Forwarded-For")) > 0:
		writeError(w, http.StatusForbidden)
		return
	}

	ttl, err := strconv.Atoi(r.Header.Get(ttlHeader))
	if err != nil || ttl < 1 || ttl > maxTokenTTL {
		writeError(w, http.StatusBadRequest)
		return
	}

	token := s.tokens.newToken(id, s.opts.Clock().Add(time.Duration(ttl)*time.Second))
	w.Header().Set(ttlHeader, strconv.Itoa(ttl))
	s.writeValue(w, r, []byte(token))
}

func (s *service) serveValue(w http.ResponseWriter, r *http.Request, id string) {
	version, path := splitPath(r.URL.Path)
	if version == "" {
		s.writeValue(w, r, []byte(strings.Join(apiVersions(), "\n")))
		return
	}

	if !slices.Contains(apiVersions(), version) {
		writeError(w, http.StatusNotFound)
		return
	}

	value, found, err := s.opts.Source.GetValue(id, path)
	if err != nil {
		s.opts.Log.LogAttrs(r.Context(), slog.LevelError, "cannot read metadata value",
			slog.String("instance", id), slog.String("path", path), slog.Any("error", err))
		writeError(w, http.StatusInternalServerError)
		return
	}

	if !found {
		lister, ok := s.opts.Source.(PathLister)
		if ok {
			value, found = listDirectory(lister.ListPaths(id), path)
		}
	}

	if !found {
		writeError(w, http.StatusNotFound)
		return
	}

	s.writeValue(w, r, value)
}

// splitPath splits a request's path into the version and the rest, without slashes at either end.
func splitPath(path string) (version, rest string) {
	version, rest, _ = strings.Cut(strings.Trim(path, "/"), "/")
	return version, strings.Trim(rest, "/")
}

// listDirectory renders a directory: one entry per line, no newline at the end, and a slash after
// each entry that is a directory. The second result is false if the directory is empty. An instance
// without user data has no entry user-data.
func listDirectory(paths []string, dir string) ([]byte, bool) {
	var entries []string
	for _, p := range paths {
		rest := p
		below := true
		if dir != "" {
			rest, below = strings.CutPrefix(p, dir+"/")
		}

		if !below {
			continue
		}

		name, _, deeper := strings.Cut(rest, "/")
		if deeper && dir != "" {
			name += "/"
		}

		entries = append(entries, name)
	}

	slices.Sort(entries)

	return []byte(strings.Join(slices.Compact(entries), "\n")), len(entries) > 0
}

func (s *service) writeValue(w http.ResponseWriter, r *http.Request, value []byte) {
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.Itoa(len(value)))
	w.Header().Set("Accept-Ranges", "none")
	if r.Method == http.MethodHead {
		return
	}

	_, err := w.Write(value)
	if err != nil {
		s.opts.Log.DebugContext(r.Context(), "metadata client closed the connection", slog.Any("error", err))
	}
}

// writeError writes an error with a small HTML page like EC2's. cloud-init and SDKs use only the
// status.
func writeError(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(status)
	title := strconv.Itoa(status) + " - " + cmp.Or(http.StatusText(status), "Error")
	_, _ = w.Write([]byte("<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<html><head><title>" + title +
		"</title></head><body><h1>" + title + "</h1></body></html>\n"))
}
