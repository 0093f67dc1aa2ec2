// SPDX-License-Identifier: Apache-2.0

// Package imds is the instance metadata service: session tokens (IMDSv2), directories and values over HTTP. It does
// not know what the values are, nor how a request reaches it: both come from its caller.
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

// MetadataSource is what is known about the instances. It may be called from several goroutines.
//
// Paths are relative to a version and have no slash at either end: "meta-data/instance-id", "user-data",
// "meta-data/iam/security-credentials/role", "dynamic/instance-identity/document".
type MetadataSource interface {
	// FindInstance finds who has a private address in a VPC; ok is false where nobody has it.
	FindInstance(vpc string, addr netip.Addr) (id string, ok bool)
	// GetValue returns the value at a path. Where there is none, found is false and err nil; an error becomes a 500.
	GetValue(instanceID, path string) (value []byte, found bool, err error)
	// TokenOptions says whether an instance's requests need a session token, and whether they are answered at all.
	TokenOptions(instanceID string) (tokensRequired, enabled bool)
}

// PathLister is what a Source has in addition if directories should be listed.
type PathLister interface {
	// ListPaths returns all paths for which Get finds a value, in any order.
	ListPaths(instanceID string) []string
}

// Options is what the service needs from outside. Source, From and Clock are required.
type Options struct {
	Source MetadataSource
	// RequestOrigin finds the VPC and address that a request came from in its context.
	RequestOrigin func(ctx context.Context) (vpc string, addr netip.Addr, ok bool)
	// Clock tells the time.
	Clock func() time.Time
	// TokenKey signs tokens. With the same key tokens survive a restart; empty means a random one.
	TokenKey []byte
	// Log takes errors of the source; nil means silence.
	Log *slog.Logger
}

const (
	tokenPath   = "api/token"
	tokenHeader = "X-Aws-Ec2-Metadata-Token" //nolint:gosec // the name of an HTTP header, not a secret
	ttlHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	maxTokenTTL = 21600 // seconds, AWS's limit of six hours
)

// apiVersions that clients ask for; all give the same tree. cloud-init tries several and falls back to the first.
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

// New returns the handler that serves the metadata of whichever instance asks.
func New(opts Options) (http.Handler, error) {
	if opts.Source == nil || opts.RequestOrigin == nil || opts.Clock == nil {
		return nil, errors.New("metadata service: source, from and clock are required")
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

// ServeHTTP answers one request.
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

// issueToken gives a session token. A request that came through a proxy gets none: an open proxy on an instance must not
// hand out its credentials.
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
		s.opts.Log.LogAttrs(r.Context(), slog.LevelError, "metadata value cannot be read",
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

// splitPath parts a request's path into its version and the rest, without slashes at the ends.
func splitPath(path string) (version, rest string) {
	version, rest, _ = strings.Cut(strings.Trim(path, "/"), "/")
	return version, strings.Trim(rest, "/")
}

// listDirectory renders a directory: one entry a line, no newline at the end, a slash after each that is itself a directory.
// User data is shown beside the directories only where there is some.
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
		s.opts.Log.LogAttrs(r.Context(), slog.LevelDebug, "metadata client went away", slog.Any("error", err))
	}
}

// writeError answers as EC2 does, with a small page: cloud-init and SDKs look at the status only.
func writeError(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(status)
	title := strconv.Itoa(status) + " - " + cmp.Or(http.StatusText(status), "Error")
	_, _ = w.Write([]byte("<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<html><head><title>" + title +
		"</title></head><body><h1>" + title + "</h1></body></html>\n"))
}
